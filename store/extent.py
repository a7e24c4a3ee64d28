"""How much of the token axis of a model is shown: the rows that each of its steps holds.

A corpus can grow, and then the token axis of its models, one step after the other. What readers
see is the first tokens of the axis, as many as every complete step holds, so that a model is
shown as it was until its last step is longer, and never with rows that a step has not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import zarr
from zarr.abc.store import Store

from .columns import Column, read_columns
from .identity import JSON
from .listing import ArrayNode, GroupNode
from .schema import STEP, STEP_COORDINATES, TOKEN, TOKEN_COORDINATES

EXTENTS: Final = "extents"
"""Attribute of a model whose token axis grew: what it was before, the shortest first."""

N_TOKENS: Final = "n_tokens"


@dataclass(frozen=True)
class Extent:
    """The part of a model's token axis that is shown.

    Attributes:
        n_tokens: Number of tokens shown.
        axis: Length of the axis on disk.
        attrs: Attributes of the group, those about its tokens as they were at that length.
    """

    n_tokens: int
    axis: int
    attrs: Mapping[str, JSON]

    @property
    def whole(self) -> bool:
        """Whether all of the axis is shown."""
        return self.n_tokens == self.axis


def extents_of(attrs: Mapping[str, JSON]) -> list[Mapping[str, JSON]]:
    """Return what a model's group was before its token axis grew, nothing if it never did."""
    listed = attrs.get(EXTENTS)
    if not isinstance(listed, Sequence):
        return []
    return [entry for entry in listed if isinstance(entry, Mapping)]


def token_counts(store: Store, path: str, capacity: int, axis: int) -> npt.NDArray[np.int64]:
    """Return how many tokens each slot of a model's group holds (slot,)."""
    column = Column(path, STEP_COORDINATES[N_TOKENS], capacity)
    counts = read_columns(store, [column])[0].astype(np.int64)
    return np.where(counts > 0, counts, axis)


def shown_extent(
    store: Store, path: str, attrs: Mapping[str, JSON], capacity: int, axis: int
) -> Extent:
    """Find out how much of a model's token axis is shown.

    Args:
        store: The Zarr store of a snapshot.
        path: Path of the model's group.
        attrs: Its attributes.
        capacity: Number of its slots.
        axis: Length of its token axis.
    """
    former = extents_of(attrs)
    if not former:
        return Extent(axis, axis, attrs)
    plain = {name: value for name, value in attrs.items() if name != EXTENTS}
    names = (STEP, "complete")
    columns = [Column(path, STEP_COORDINATES[name], capacity) for name in names]
    steps, complete = read_columns(store, columns)
    counts = token_counts(store, path, capacity, axis)
    n_tokens = int(counts[complete.astype(bool) & (steps.astype(np.int64) >= 0)].min(initial=axis))
    matching = (dict(entry) for entry in former if entry[N_TOKENS] == n_tokens < axis)
    facts = next(matching, {})
    facts.pop(N_TOKENS, None)
    return Extent(n_tokens, axis, {**plain, **facts})


def group_extent(group: zarr.Group) -> Extent:
    """Return how much of the token axis of a model's group is shown."""
    token_id, step = group["token_id"], group[STEP]
    assert isinstance(token_id, zarr.Array)
    assert isinstance(step, zarr.Array)
    attrs = group.attrs.asdict()
    return shown_extent(group.store, group.path, attrs, step.shape[0], token_id.shape[0])


def shown_node(store: Store, node: GroupNode) -> GroupNode:
    """Return the metadata of a model's group with the token axis as long as it is shown."""
    if not extents_of(node.attrs):
        return node
    axis = node.arrays[next(iter(TOKEN_COORDINATES))].shape[0]
    extent = shown_extent(store, node.path, node.attrs, node.arrays[STEP].shape[0], axis)
    arrays = {name: _shortened(array, extent.n_tokens) for name, array in node.arrays.items()}
    return replace(node, attrs=extent.attrs, arrays=arrays)


def _shortened(node: ArrayNode, n_tokens: int) -> ArrayNode:
    sizes = zip(node.dims, node.shape, strict=True)
    return replace(node, shape=tuple(n_tokens if dim == TOKEN else size for dim, size in sizes))
