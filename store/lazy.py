"""Arrays of the store that xarray indexes without reading, and reads by what is indexed.

They name a snapshot by URI and id instead of holding it open, so they are small to pickle, and
open the store in the process that reads. Keys are outer-indexing keys: one integer, slice or
integer array an axis, each axis on its own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import xarray as xr
from xarray.backends import BackendArray
from xarray.core import indexing

from .arrays import member
from .chunks import ActivationArray, Floats
from .columns import Column, read_columns
from .listing import ArrayNode
from .pinned import activation_array, site_layers, snapshot_root
from .schema import Variable

AxisKey: TypeAlias = int | slice | npt.NDArray[np.integer]
Values: TypeAlias = npt.NDArray[np.generic]
Positions: TypeAlias = npt.NDArray[np.intp]


class LazyArray(BackendArray):
    """An array that reads what an outer-indexing key selects.

    Attributes:
        shape: Its shape.
        dtype: Its dtype.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Values:
        if not isinstance(key, indexing.VectorizedIndexer):
            return self.read(key.tuple)
        values: Values = indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER, self.read
        )
        return values

    def read(self, key: tuple[AxisKey, ...]) -> Values:
        """Read the selected elements; an axis indexed by one integer is dropped."""
        positions = [
            np.atleast_1d(np.arange(size)[part]) for size, part in zip(self.shape, key, strict=True)
        ]
        kept = [len(at) for at, part in zip(positions, key, strict=True) if not _is_integer(part)]
        return self.read_outer(positions).reshape(kept)

    @abstractmethod
    def read_outer(self, positions: Sequence[Positions]) -> Values:
        """Read the outer product of positions along the axes, none dropped."""


def _is_integer(part: AxisKey) -> bool:
    return not isinstance(part, slice) and np.ndim(part) == 0


@dataclass(frozen=True)
class Origin:
    """A group of a snapshot.

    Attributes:
        uri: Where the store is.
        snapshot: Id of the snapshot.
        path: Path of the group.
    """

    uri: str
    snapshot: str
    path: str


def lazy_variable(array: LazyArray, node: ArrayNode, *, cached: bool) -> xr.Variable:
    """Return an xarray variable that reads when it is computed with.

    Args:
        array: What is read.
        node: Names of its dimensions, and its attributes.
        cached: Whether the values stay in memory once all of them were read.
    """
    lazy = indexing.LazilyIndexedArray(array)
    data = indexing.MemoryCachedArray(lazy) if cached else lazy
    return xr.Variable(node.dims, data, dict(node.attrs))


class StoredTable(LazyArray):
    """An array read through Zarr: token coordinates, texts, metric results.

    Args:
        origin: Its group.
        name: Its name in the group.
        dtype: Its dtype; object for strings.
        orders: For each axis, the place on disk of each element shown.
    """

    def __init__(
        self, origin: Origin, name: str, dtype: np.dtype[np.generic], orders: Sequence[Positions]
    ) -> None:
        self.origin, self.name, self.dtype = origin, name, dtype
        self.orders = tuple(orders)
        self.shape = tuple(len(order) for order in self.orders)

    def __dask_tokenize__(self) -> tuple[object, ...]:
        return ("StoredTable", self.origin, self.name, self.orders)

    def read_outer(self, positions: Sequence[Positions]) -> Values:
        """Read through Zarr, chunks side by side."""
        group = snapshot_root(self.origin.uri, self.origin.snapshot)
        array = member(group, f"{self.origin.path}/{self.name}")
        places = [order[at] for order, at in zip(self.orders, positions, strict=True)]
        values = np.asarray(array.oindex[tuple(map(narrowed, places))])
        return values.astype(self.dtype, copy=False)


class StoredColumn(LazyArray):
    """A per-step coordinate.

    Args:
        origin: Its group.
        variable: Its declaration.
        slots: Place on disk of each step shown.
        size: Number of slots.
    """

    def __init__(self, origin: Origin, variable: Variable, slots: Positions, size: int) -> None:
        self.origin, self.slots = origin, slots
        self.column = Column(origin.path, variable, size)
        self.dtype = np.dtype(object if variable.dtype == "str" else variable.dtype)
        self.shape = (len(slots),)

    def __dask_tokenize__(self) -> tuple[object, ...]:
        return ("StoredColumn", self.origin, self.column, self.slots)

    def read_outer(self, positions: Sequence[Positions]) -> Values:
        """Read the column in one request."""
        store = snapshot_root(self.origin.uri, self.origin.snapshot).store
        (values,) = read_columns(store, [self.column])
        return values[self.slots[positions[0]]]


class StoredActivations(LazyArray):
    """The activations of one site over the steps shown, NaN where one was stored without them.

    Args:
        origin: Its group.
        site: Its name.
        slots: Place on disk of each step shown.
        row_shape: Sizes of its other dimensions.
        order: Place on disk of each layer or block shown; ignored for a site without either.
    """

    dtype = np.dtype(np.float32)

    def __init__(
        self,
        origin: Origin,
        site: str,
        slots: Positions,
        row_shape: tuple[int, ...],
        order: Positions,
    ) -> None:
        self.origin, self.site, self.slots, self.order = origin, site, slots, order
        self.shape = (len(slots), *row_shape)

    def __dask_tokenize__(self) -> tuple[object, ...]:
        return ("StoredActivations", self.origin, self.site, self.slots, self.order)

    def read_outer(self, positions: Sequence[Positions]) -> Values:
        """Read each chunk touched once; a lost or damaged one is an error."""
        origin = self.origin
        array = activation_array(origin.uri, origin.snapshot, origin.path, self.site)
        outer = 1 if array.depth_dim is None else 2
        depths: list[int | None] = [None]
        if outer == 2:
            depths = [*self.order[positions[1]].tolist()]
        shape = tuple(len(at) for at in positions)
        inner = positions[outer:]
        pairs = list(product(self.slots[positions[0]].tolist(), depths))
        holds = site_layers(origin.uri, origin.snapshot, origin.path, self.site)
        out = np.empty((len(pairs), *shape[outer:]), dtype=self.dtype)
        for rows, (slot, depth) in zip(out, pairs, strict=True):
            if holds[slot, depth or 0]:
                _read_rows(array, slot, depth, inner, rows)
            else:
                rows.fill(np.nan)
        return out.reshape(shape)


def _read_rows(
    array: ActivationArray, slot: int, depth: int | None, inner: Sequence[Positions], out: Floats
) -> None:
    """Read rows of one step and depth into place, narrowed to what else was selected."""
    tokens = inner[array.token_axis]
    if len(tokens) == 0:
        return
    narrower = [
        axis
        for axis, at in enumerate(inner)
        if axis != array.token_axis and not np.array_equal(at, np.arange(array.inner_shape[axis]))
    ]
    if is_run(tokens):
        room = None if narrower else out
        values = array.read(slot, depth, int(tokens[0]), int(tokens[-1]) + 1, out=room)
    else:
        distinct, back = np.unique(tokens, return_inverse=True)
        values = np.take(array.gather(slot, depth, distinct), back, axis=array.token_axis)
    for axis in narrower:
        values = np.take(values, inner[axis], axis=axis)
    if values is not out:
        out[...] = values


def is_run(positions: Positions) -> bool:
    """Return whether positions are consecutive and ascending."""
    return bool(np.all(np.diff(positions) == 1))


def narrowed(positions: Positions) -> slice | Positions:
    """Return a slice where positions are consecutive, since slices are read and written faster."""
    if len(positions) == 0 or not is_run(positions):
        return positions
    return slice(int(positions[0]), int(positions[-1]) + 1)
