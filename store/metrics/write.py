"""Merging metric results into the store, in one commit, losing nothing that was there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import xarray as xr
import zarr
from zarr.core.metadata import ArrayV3Metadata
from zarr.core.sync import sync

from store.errors import StoreError
from store.identity import JSON
from store.layout import table_codecs
from store.messages import added_metrics
from store.repository import Repository
from store.schema import METRICS_GROUP, SOURCE_SUFFIX, STEP

from .axes import Axes, ZarrArray, dimension_names
from .definition import KEY_DIMS, Definition
from .provenance import NO_SOURCE, append_sources, step_identities

CHUNK_BYTES: Final = 16 << 10
MAX_STEPS_PER_CHUNK: Final = 64

Values = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Patch:
    """Values for a box of an array.

    Attributes:
        places: Where along each axis on disk, the step axis first.
        values: The values, in the same axes.
    """

    places: tuple[npt.NDArray[np.intp], ...]
    values: Values


Patched = tuple[ZarrArray, list[Patch]]
"""An array, and what is to be changed in it."""


def write_metrics(
    repository: Repository,
    path: str,
    results: xr.Dataset | Sequence[xr.Dataset],
    *,
    snapshot: str,
    definitions: Sequence[Definition],
) -> str:
    """Merge results into the metrics of a model, in one commit.

    Every value of a box replaces what was stored under its labels, NaN included; what no box
    covers stays as it was. Variables named by a definition carry provenance and can be found
    stale; others (standard errors, counts) are stored beside them.

    Args:
        repository: The store.
        path: ``corpus/model`` or ``corpus/model/stack``.
        results: Boxes of results, each with the dimension ``step``, usually (step, layer,
            population, ...). Integers are stored as float64, in which NaN says absent. Attributes
            of variables and of the first box are kept; coordinates that label no dimension are not.
        snapshot: Snapshot the activations were read from.
        definitions: What the metrics among the variables are.

    Returns:
        The id of the snapshot that holds the results.

    Raises:
        UnknownNameError: If the model or a step is not in ``snapshot``.
        StoreError: If a variable has no ``step``, is not numeric, or has other dimensions than the
            stored one.
        ConflictError: If other commits came first a hundred times.
    """
    boxes = [results] if isinstance(results, xr.Dataset) else list(results)
    _check(boxes)
    steps = sorted({int(step) for box in boxes for step in box[STEP].values})
    identities = step_identities(repository.uri, snapshot, path, steps)

    def change(root: zarr.Group) -> None:
        group = root.require_group(f"{path}/{METRICS_GROUP}")
        axes = Axes(group)
        axes.extend(boxes)
        sources = append_sources(axes, snapshot, identities, definitions)
        patched = [
            _values(axes, name, [box for box in boxes if name in box])
            for name in dict.fromkeys(str(name) for box in boxes for name in box.data_vars)
        ]
        for definition in definitions:
            holding = [box for box in boxes if definition.metric in box]
            if holding:
                patched.append(_sources(axes, definition, holding, sources))
        sync(_apply_each(patched))
        group.update_attributes(dict(boxes[0].attrs))

    names = [definition.metric for definition in definitions] or [*map(str, boxes[0].data_vars)]
    repository.update(added_metrics(path, names, steps), change)
    return repository.snapshot_id()


def _check(boxes: Sequence[xr.Dataset]) -> None:
    for box in boxes:
        if STEP not in box.coords:
            raise StoreError(f"metric results need labels along 'step', got {dict(box.sizes)}")
        for name, variable in box.data_vars.items():
            if STEP not in variable.dims or variable.dtype.kind not in "fiub":
                raise StoreError(
                    f"metric {str(name)!r} is {variable.dtype} over {variable.dims};"
                    " expected numbers with the dimension 'step'"
                )
    if not boxes:
        raise StoreError("there are no metric results to write")


def _values(axes: Axes, name: str, boxes: Sequence[xr.Dataset]) -> Patched:
    first = boxes[0][name]
    keys = [dim for dim in KEY_DIMS if dim in first.dims]
    dims = (*keys, *(str(dim) for dim in first.dims if dim not in keys))
    dtype = np.result_type(*(_floating(box[name].dtype) for box in boxes))
    array = _array(axes, name, dims, dtype, first.attrs)
    patches = [
        Patch(
            tuple(axes.places(box, dim) for dim in dims),
            box[name].transpose(*dims).values.astype(array.dtype),
        )
        for box in boxes
    ]
    return array, patches


def _sources(
    axes: Axes,
    definition: Definition,
    boxes: Sequence[xr.Dataset],
    sources: Mapping[tuple[int, int, str], int],
) -> Patched:
    dims = tuple(dim for dim in KEY_DIMS if dim in boxes[0][definition.metric].dims)
    name = definition.metric + SOURCE_SUFFIX
    attrs = {"long_name": f"row of the table source for each value of {definition.metric}"}
    array = _array(axes, name, dims, np.dtype(np.int32), attrs)
    return array, [_source_patch(axes, definition, box, dims, sources) for box in boxes]


def _source_patch(
    axes: Axes,
    definition: Definition,
    box: xr.Dataset,
    dims: tuple[str, ...],
    sources: Mapping[tuple[int, int, str], int],
) -> Patch:
    rows = [sources[int(step), *definition.key()] for step in box[STEP].values]
    sizes = [box.sizes[dim] for dim in dims]
    along_step = np.array(rows, dtype=np.int32).reshape(-1, *(1 for _ in sizes[1:]))
    return Patch(
        tuple(axes.places(box, dim) for dim in dims), np.broadcast_to(along_step, tuple(sizes))
    )


def _floating(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    return dtype if dtype.kind == "f" else np.dtype(np.float64)


def _array(
    axes: Axes,
    name: str,
    dims: tuple[str, ...],
    dtype: np.dtype[np.generic],
    attrs: Mapping[str, JSON],
) -> ZarrArray:
    """Return the array of a variable, created unless it is there with the same dimensions."""
    if name not in axes.arrays:
        shape = axes.shape(dims)
        row = shape[1:]
        bytes_a_step = max(1, int(np.prod(row)) * dtype.itemsize)
        steps = min(max(1, CHUNK_BYTES // bytes_a_step), MAX_STEPS_PER_CHUNK)
        axes.arrays[name] = axes.group.create_array(
            name,
            shape=shape,
            chunks=(steps, *row),
            dtype=dtype,
            compressors=table_codecs(),
            fill_value=NO_SOURCE if dtype.kind == "i" else np.nan,
            dimension_names=list(dims),
            attributes=dict(attrs),
            config={"write_empty_chunks": True},
        )
    array = axes.arrays[name]
    if dimension_names(array) != dims:
        raise StoreError(
            f"metric {name!r} of {axes.group.path} has the dimensions {dimension_names(array)};"
            f" got {dims}. Give the new quantity another name"
        )
    if any(array.attrs.get(key) != value for key, value in attrs.items()):
        array.update_attributes(dict(attrs))
    return array


async def _apply_each(patched: Sequence[Patched]) -> None:
    await asyncio.gather(*(_apply(array._async_array, patches) for array, patches in patched))


async def _apply(array: zarr.AsyncArray[ArrayV3Metadata], patches: Sequence[Patch]) -> None:
    """Patch an array, reading and writing each group of steps that shares a chunk once."""
    steps = array.chunks[0]
    for number, group in _by_chunk(patches, steps):
        shared = slice(number * steps, min((number + 1) * steps, array.shape[0]))
        held = np.array(await array.getitem(shared))
        for patch in group:
            here = (patch.places[0] >= shared.start) & (patch.places[0] < shared.stop)
            rows = patch.places[0][here] - shared.start
            held[np.ix_(rows, *patch.places[1:])] = patch.values[here]
        await array.setitem(shared, held)


def _by_chunk(patches: Sequence[Patch], steps_per_chunk: int) -> Iterator[tuple[int, list[Patch]]]:
    """Yield the number of each group of steps that shares a chunk, and the patches of any."""
    numbers = [set((patch.places[0] // steps_per_chunk).tolist()) for patch in patches]
    for number in sorted(set().union(*numbers)):
        yield number, [patch for patch, own in zip(patches, numbers, strict=True) if number in own]
