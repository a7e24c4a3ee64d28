"""The labels of a corpus's items, carried to every token made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import xarray as xr

from .arrays import member
from .lazy import LazyArray, Origin, Positions, Values, lazy_variable
from .listing import ArrayNode, GroupNode
from .pinned import snapshot_root
from .schema import CORPUS_VARIABLES, ITEM_VARIABLES, TOKEN

_LABELS = ("label", "text_label")


class TokenLabels(LazyArray):
    """The label of the item or text that each token belongs to.

    Args:
        origin: The model's group.
        labels: Path of the labels of the corpus.
        size: Number of tokens.
    """

    dtype = np.dtype(object)

    def __init__(self, origin: Origin, labels: str, size: int) -> None:
        self.origin, self.labels = origin, labels
        self.shape = (size,)

    def __dask_tokenize__(self) -> tuple[object, ...]:
        return ("TokenLabels", self.origin, self.labels)

    def read_outer(self, positions: Sequence[Positions]) -> Values:
        """Read the labels, and pick those of the tokens; empty where a token has no item."""
        root = snapshot_root(self.origin.uri, self.origin.snapshot)
        labels = np.append(np.asarray(member(root, self.labels)[:]).astype(object), "")
        owners = np.asarray(member(root, f"{self.origin.path}/document")[:])
        picked: Values = labels[owners[positions[0]]]
        return picked


def token_labels(origin: Origin, corpus: GroupNode, model: GroupNode) -> dict[str, xr.Variable]:
    """Return the coordinate ``label`` (token) of a model, none where its corpus has no labels.

    Args:
        origin: The model's group.
        corpus: What is known of the corpus.
        model: What is known of the model.
    """
    name = next((name for name in _LABELS if name in corpus.arrays), None)
    if name is None or "document" not in model.arrays:
        return {}
    declared = {**ITEM_VARIABLES, **CORPUS_VARIABLES}[name]
    like = model.arrays["document"]
    node: ArrayNode = replace(
        like, name="label", dims=(TOKEN,), attrs={"long_name": declared.description}
    )
    array = TokenLabels(origin, f"{corpus.path}/{name}", like.shape[0])
    return {"label": lazy_variable(array, node, cached=True)}
