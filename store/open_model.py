"""One model of a snapshot with its complete steps and depths known, and nothing else read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import zarr

from .arrays import member
from .columns import Slots, complete_slots
from .extent import shown_node
from .join import Axis, Labelled
from .lazy import LazyArray, Origin, StoredActivations, StoredColumn, StoredTable
from .listing import GroupNode
from .schema import BLOCK, LAYER, STEP, STEP_COORDINATES
from .slab import snapshot_root


@dataclass(frozen=True)
class OpenModel:
    """A model's group, or that of one of its stacks.

    Attributes:
        origin: Where it is.
        node: Its metadata, the token axis as long as it is shown.
        slots: Its complete steps.
        depths: Labels of ``layer`` and ``block``.
    """

    origin: Origin
    node: GroupNode
    slots: Slots
    depths: dict[str, list[int]]

    def array(self, name: str) -> LazyArray:
        """Return one of its arrays, over the complete steps in the order of their labels."""
        node = self.node.arrays[name]
        if name in STEP_COORDINATES:
            variable = STEP_COORDINATES[name]
            return StoredColumn(self.origin, variable, self.slots.slots, node.shape[0])
        if node.dims[0] == STEP:
            return StoredActivations(self.origin, name, self.slots.slots, node.shape[1:])
        orders = [np.arange(size) for size in node.shape]
        return StoredTable(self.origin, name, node.dtype, orders)

    def labelled(self, name: str) -> Labelled:
        """Return one of its arrays with its axes."""
        array = self.array(name)
        labels: dict[str, Axis] = {STEP: self.slots.steps.tolist(), **self.depths}
        dims = self.node.arrays[name].dims
        axes = {dim: labels.get(dim, size) for dim, size in zip(dims, array.shape, strict=True)}
        return Labelled(array, axes)


def open_models(uri: str, snapshot: str, nodes: Sequence[GroupNode]) -> list[OpenModel]:
    """Open the groups that hold activations; the steps of all are read in one request.

    Args:
        uri: Where the store is.
        snapshot: Id of the snapshot.
        nodes: Groups that have a step axis.

    Raises:
        StoreError: If the labels of the steps cannot be read.
    """
    root = snapshot_root(uri, snapshot)
    nodes = [shown_node(root.store, node) for node in nodes]
    sizes = [(node.path, node.arrays[STEP].shape[0]) for node in nodes]
    return [
        OpenModel(Origin(uri, snapshot, node.path), node, slots, _depths(root, node))
        for node, slots in zip(nodes, complete_slots(root.store, sizes), strict=True)
    ]


def _depths(root: zarr.Group, node: GroupNode) -> dict[str, list[int]]:
    return {
        name: np.asarray(member(root, f"{node.path}/{name}")[:]).tolist()
        for name in (LAYER, BLOCK)
        if name in node.arrays
    }
