"""Exports that keep the labelled arrays: plain Zarr and NetCDF."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import dask
import xarray as xr

from store.errors import StoreError
from store.identity import JSON
from store.layout import activation_codecs
from store.schema import BLOCK, LAYER, STEP, TOKEN

from .copied import Copied, Tell, new_file
from .selection import Selection


def export_zarr(selection: Selection, directory: Path, tell: Tell) -> list[Path]:
    """Write one Zarr v3 hierarchy: groups, arrays, chunks and codec as in the store."""
    target = directory / f"{selection.corpus}.zarr"
    for path, dataset in _watched(selection, tell):
        new_file(target / path)
        rows = dataset.attrs["chunk_rows"]
        encoding = {
            name: {"chunks": _chunks(array, rows), "compressors": activation_codecs()}
            for name, array in dataset.data_vars.items()
        }
        with _own_threads():
            dataset.to_zarr(
                target, group=path, zarr_format=3, consolidated=False, encoding=encoding
            )
    return [target]


def _watched(selection: Selection, tell: Tell) -> Iterator[tuple[str, xr.Dataset]]:
    """Yield the path of each model and its lazy dataset, whose chunks are told as they go by."""
    chosen = list(selection.datasets())
    copied = Copied.of_datasets((dataset for _, dataset in chosen), tell)
    for path, dataset in chosen:
        yield path, copied.watched(dataset)


@contextmanager
def _own_threads() -> Iterator[None]:
    """Let Dask write with threads that have ended afterwards, also where the user stopped it.

    Its own would go on writing into a directory that is being taken away.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool, dask.config.set(pool=pool):
        yield


def _chunks(array: xr.DataArray, rows: int) -> tuple[int, ...]:
    narrow = {STEP: 1, LAYER: 1, BLOCK: 1, TOKEN: min(rows, array.sizes[TOKEN])}
    return tuple(narrow.get(str(dim), size) for dim, size in array.sizes.items())


def export_netcdf(selection: Selection, directory: Path, tell: Tell) -> list[Path]:
    """Write a NetCDF-4 file a model; attributes that it has no type for become JSON."""
    if importlib.util.find_spec("netCDF4") is None:
        raise StoreError("exporting to NetCDF needs netCDF4: pip install netCDF4")
    written = []
    for path, dataset in _watched(selection, tell):
        plain = dataset.assign_attrs({k: _plain(v) for k, v in dataset.attrs.items()})
        target = new_file(directory / f"{path.replace('/', '--')}.nc")
        encoding = {name: {"zlib": True, "complevel": 1} for name in dataset.data_vars}
        with _own_threads():
            plain.to_netcdf(target, engine="netcdf4", encoding=encoding)
        written.append(target)
    return written


def _plain(value: JSON) -> str | int | float:
    """Return an attribute as NetCDF can hold it."""
    if isinstance(value, bool):
        return int(value)
    return value if isinstance(value, str | int | float) else json.dumps(value)
