"""Choosing among the models of a corpus, by their ids, and naming them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import xarray as xr

from .depths import relative_depth
from .errors import StoreError, UnknownNameError
from .join import Label
from .listing import GroupNode, list_groups
from .pinned import model_group
from .schema import DEPTH_COORDINATES, LAYER, MODEL, STACKS, node_name


def chosen_models(
    uri: str,
    snapshot: str,
    corpus: str,
    models: Sequence[str] | None,
    holds: Callable[[GroupNode], bool],
) -> dict[str, GroupNode]:
    """Return models of a corpus by their ids; a stack is called ``id/encoder``.

    Args:
        uri: Where the store is.
        snapshot: Id of the snapshot.
        corpus: Name of the corpus.
        models: Ids or names of groups, with or without a stack; by default all that ``holds``.
        holds: Whether a group has what is asked for.

    Raises:
        UnknownNameError: If there is no such corpus, or no such model that ``holds``.
        StoreError: If the models are one text.
    """
    if isinstance(models, str):
        raise StoreError(f"models are one text, {models!r}: expected a list of names, [{models!r}]")
    listing = list_groups(model_group(uri, snapshot, corpus))
    known = {
        _label(node): node
        for model in listing.groups.values()
        for node in model.walk()
        if holds(node)
    }
    if models is None:
        return known
    chosen: dict[str, GroupNode] = {}
    for name in models:
        found = {label: node for label, node in known.items() if _is_called(label, name)}
        if not found:
            raise UnknownNameError("model", name, known, f"{corpus} of {uri}")
        chosen |= found
    return chosen


def _label(node: GroupNode) -> str:
    _, name, *stack = node.path.split("/")
    return "/".join([str(node.attrs.get("model", name)), *stack])


def _is_called(label: str, name: str) -> bool:
    """Return whether a name means a model or one of its stacks: ids and group names both do."""
    wanted, label = node_name(name), node_name(label)
    return label == wanted or label in {f"{wanted}--{stack}" for stack in STACKS}


def relative_depths(
    nodes: Iterable[GroupNode], layers: Sequence[Label], dim: str = LAYER
) -> xr.Variable:
    """Return how deep layers lie in models (model, layer): 0 for embeddings, 1 for the last block.

    Args:
        nodes: The groups of the models.
        layers: Labels of layers, or of blocks; NaN stands where a model has fewer.
        dim: Which of the two they are.
    """
    numbers = np.asarray(layers, dtype=np.float64)
    depths = np.stack([relative_depth(node.attrs, numbers) for node in nodes])
    declared = DEPTH_COORDINATES["relative_depth"]
    attrs = {"long_name": declared.description, "units": declared.units}
    return xr.Variable((MODEL, dim), depths, attrs)
