"""Copies of a store in formats that other programs read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from store.errors import StoreError, UnknownNameError

from .arrays import export_netcdf, export_zarr
from .copied import Tell, tell_nobody
from .hugging_face import export_datasets
from .rows import export_parquet, export_safetensors
from .selection import Selection

FORMATS: Final[Mapping[str, Callable[[Selection, Path, Tell], list[Path]]]] = {
    "zarr": export_zarr,
    "netcdf": export_netcdf,
    "safetensors": export_safetensors,
    "parquet": export_parquet,
    "datasets": export_datasets,
}
"""What each format's writer makes of a selection in an empty directory: the files it wrote."""

__all__ = ["FORMATS", "Selection", "export"]


def export(
    selection: Selection,
    target: str | os.PathLike[str],
    *,
    format: str,  # noqa: A002
    tell: Tell = tell_nobody,
) -> list[Path]:
    """Copy what is selected into a new directory, which appears when all of it is written.

    Args:
        selection: What to copy.
        target: The directory; it is created, and must be empty if it is there.
        format: ``"zarr"``: a plain Zarr v3 hierarchy with the groups of the store; ``"netcdf"``:
            a file a model; ``"safetensors"``: a file a model and step, a tensor a site and layer;
            ``"parquet"``: a file a model, step, site and layer, a row a token; ``"datasets"``: a
            directory a model and site, which ``datasets.load_from_disk`` opens.
        tell: Called with the bytes of values just copied, and of all, by several threads.

    Returns:
        What was written.

    Raises:
        UnknownNameError: If there is no such format, corpus, model, site, step or layer.
        StoreError: If the directory is not empty or its disk is full, or a package that the format
            needs is missing.
    """
    if format not in FORMATS:
        raise UnknownNameError("format", format, FORMATS, "actlas export")
    directory = Path(target)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise StoreError(f"cannot export to {directory}: it is there already. Give a new path")
    partial = directory.with_name(f".{directory.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        written = FORMATS[format](selection, partial, tell)
        partial.rename(directory)
    except OSError as error:
        # What a full disk says does not name a file.
        if error.filename is not None:
            raise
        raise StoreError(f"cannot write to {directory}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return [directory / path.relative_to(partial) for path in written]
