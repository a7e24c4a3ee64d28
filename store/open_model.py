"""One model of a snapshot with its complete steps and depths known, and nothing else read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import zarr

from .columns import Slots, complete_slots
from .extent import shown_node
from .held_layers import axis_labels, shown_layers
from .join import Axis, Labelled
from .lazy import LazyArray, Origin, Positions, StoredActivations, StoredColumn, StoredTable
from .listing import GroupNode
from .pinned import snapshot_root
from .schema import STEP, STEP_COORDINATES


@dataclass(frozen=True)
class OpenModel:
    """A model's group, or that of one of its stacks.

    Attributes:
        origin: Where it is.
        node: Its metadata, the token axis as long as it is shown.
        slots: Its complete steps.
        depths: Labels of ``layer`` and ``block``, ascending.
        orders: Place of each of them on disk.
    """

    origin: Origin
    node: GroupNode
    slots: Slots
    depths: dict[str, list[int]]
    orders: dict[str, Positions]

    def array(self, name: str) -> LazyArray:
        """Return one of its arrays, over the complete steps in the order of their labels."""
        node = self.node.arrays[name]
        if name in STEP_COORDINATES:
            variable = STEP_COORDINATES[name]
            return StoredColumn(self.origin, variable, self.slots.slots, node.shape[0])
        places = [
            self.orders.get(dim, np.arange(size))
            for dim, size in zip(node.dims, node.shape, strict=True)
        ]
        if node.dims[0] == STEP:
            sizes = tuple(map(len, places[1:]))
            return StoredActivations(self.origin, name, self.slots.slots, sizes, places[1])
        return StoredTable(self.origin, name, node.dtype, places)

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
    opened = zip(nodes, complete_slots(root.store, sizes), strict=True)
    return [_open(root, Origin(uri, snapshot, node.path), node, slots) for node, slots in opened]


def _open(root: zarr.Group, origin: Origin, node: GroupNode, slots: Slots) -> OpenModel:
    axes = axis_labels(node.attrs)
    shown = shown_layers(root.store, node, slots.slots)
    labels = {dim: np.asarray(own, dtype=np.intp) for dim, own in axes.items()}
    orders = {dim: np.flatnonzero(np.isin(own, shown)) for dim, own in labels.items()}
    orders = {dim: at[np.argsort(labels[dim][at])] for dim, at in orders.items()}
    depths = {dim: labels[dim][at].tolist() for dim, at in orders.items()}
    return OpenModel(origin, node, slots, depths, orders)
