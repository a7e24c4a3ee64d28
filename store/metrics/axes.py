"""The axes of metric results: lists of labels that only ever get longer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import xarray as xr
import zarr
from zarr.core.metadata import ArrayV3Metadata
from zarr.core.sync import sync

from store.arrays import read_members
from store.join import Label

ZarrArray: TypeAlias = "zarr.Array[ArrayV3Metadata]"

LABELS_PER_CHUNK: Final = 1024


def read_labels(
    group: zarr.Group, arrays: Iterable[ZarrArray]
) -> dict[str, npt.NDArray[np.generic]]:
    """Return the labels of every dimension that some of a group's arrays have, each read once."""
    return read_members(group, (dim for array in arrays for dim in dimension_names(array)))


class Axes:
    """The labelled axes of a metrics group, lengthened as results need.

    Attributes:
        group: The group.
        arrays: Its arrays by name, each opened once.
        positions: For each dimension, the place of each of its labels on disk.
    """

    def __init__(self, group: zarr.Group) -> None:
        self.group = group
        self.arrays: dict[str, ZarrArray] = dict(group.arrays())
        self.positions: dict[str, dict[Label, int]] = {}

    def extend(self, results: Sequence[xr.Dataset]) -> None:
        """Add the labels that results bring along, and lengthen every array they concern.

        Args:
            results: Result boxes. A dimension without a coordinate is labelled 0, 1, 2 ...
        """
        labels: dict[str, dict[Label, None]] = {}
        for box in results:
            for name in box.dims:
                labels.setdefault(str(name), {}).update(dict.fromkeys(labels_of(box, str(name))))
        grown = {name: size for name, new in labels.items() if (size := self._append(name, new))}
        if grown:
            self._resize(grown)

    def _append(self, name: str, labels: dict[Label, None]) -> int:
        """Append the labels that are new; return the axis' new length, 0 when it has not grown."""
        stored = self._stored(name)
        positions = {label: place for place, label in enumerate(stored)}
        self.positions[name] = positions
        new = [label for label in labels if label not in positions]
        if not new:
            return 0
        for label in new:
            positions[label] = len(positions)
        if name not in self.arrays:
            self.arrays[name] = _create_labels(self.group, name, new)
        array = self.arrays[name]
        array.resize((len(positions),))
        array[len(stored) :] = np.asarray(new, dtype=array.dtype)
        return len(positions)

    def _stored(self, name: str) -> list[Label]:
        if name not in self.arrays:
            return []
        labels: list[Label] = np.asarray(self.arrays[name][:]).tolist()
        return labels

    def _resize(self, grown: dict[str, int]) -> None:
        shapes: list[tuple[ZarrArray, tuple[int, ...]]] = []
        for name, array in self.arrays.items():
            if name in self.positions:
                continue
            named = zip(dimension_names(array), array.shape, strict=True)
            shape = tuple(grown.get(dim, size) for dim, size in named)
            if shape != array.shape:
                shapes.append((array, shape))
        sync(_resize_each(shapes))

    def shape(self, dims: Sequence[str]) -> tuple[int, ...]:
        """Return the length of each of some axes."""
        return tuple(len(self.positions[name]) for name in dims)

    def places(self, box: xr.Dataset, name: str) -> npt.NDArray[np.intp]:
        """Return where on disk the labels of a box lie along one axis."""
        positions = self.positions[name]
        return np.array([positions[label] for label in labels_of(box, name)], dtype=np.intp)


async def _resize_each(shapes: Sequence[tuple[ZarrArray, tuple[int, ...]]]) -> None:
    await asyncio.gather(*(array._async_array.resize(shape) for array, shape in shapes))


def labels_of(box: xr.Dataset, name: str) -> list[Label]:
    """Return the labels of a dimension; its positions where it has no coordinate."""
    if name not in box.coords:
        return list(range(box.sizes[name]))
    labels: list[Label] = box[name].values.tolist()
    return labels


def dimension_names(array: ZarrArray) -> tuple[str, ...]:
    """Return the names of an array's dimensions, all of which are named in this format."""
    metadata = array.metadata
    assert isinstance(metadata, ArrayV3Metadata)
    return tuple(str(name) for name in metadata.dimension_names or ())


def _create_labels(group: zarr.Group, name: str, labels: Sequence[Label]) -> ZarrArray:
    texts = isinstance(labels[0], str)
    return group.create_array(
        name,
        shape=(0,),
        chunks=(LABELS_PER_CHUNK,),
        dtype=str if texts else np.asarray(labels).dtype,
        fill_value="" if texts else 0,
        dimension_names=[name],
        config={"write_empty_chunks": True},
    )
