"""Single values of per-step coordinates, several of one slot in one request.

Each is a chunk of its own, uncompressed. One by one through Zarr they are most of what a small
step costs.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Collection, Mapping
from typing import TypeAlias

import numpy as np
import zarr
from zarr.buffer import default_buffer_prototype
from zarr.core.sync import sync

from .layout import fill_value
from .schema import STEP_COORDINATES, Variable

Cell: TypeAlias = bool | int | float | str

_STRING_HEADER = struct.Struct("<II")
"""Number of strings in the chunk, and bytes of the first (the codec ``vlen-utf8``)."""


def read_cells(group: zarr.Group, slot: int, *names: str) -> list[Cell]:
    """Read the values of some per-step coordinates in one slot, in the order of the names."""
    return sync(_read(group, slot, names))


def read_texts(group: zarr.Group, slot: int, *names: str) -> list[str]:
    """Read values of coordinates that hold strings."""
    return [str(value) for value in read_cells(group, slot, *names)]


def write_cells(group: zarr.Group, slot: int, values: Mapping[str, Cell]) -> None:
    """Write the values of some per-step coordinates in one slot."""
    sync(_write(group, slot, values))


def update_cells(group: zarr.Group, slot: int, values: Mapping[str, Cell]) -> None:
    """Write values, those that are empty only where the slot holds something else.

    Each that is written costs a commit a manifest.
    """
    sync(_update(group, slot, values))


async def _read(group: zarr.Group, slot: int, names: Collection[str]) -> list[Cell]:
    variables = [STEP_COORDINATES[name] for name in names]
    found = await _stored(group, slot, names)
    return [_decoded(variable, cell) for variable, cell in zip(variables, found, strict=True)]


async def _stored(group: zarr.Group, slot: int, names: Collection[str]) -> list[bytes]:
    """Return values as they are stored, what was never written as what it reads as."""
    prototype = default_buffer_prototype()
    keys = [_key(group, name, slot) for name in names]
    found = await asyncio.gather(*(group.store.get(key, prototype) for key in keys))
    return [
        _blank(name) if cell is None else cell.to_bytes()
        for name, cell in zip(names, found, strict=True)
    ]


async def _write(group: zarr.Group, slot: int, values: Mapping[str, Cell]) -> None:
    cells = {name: _encoded(STEP_COORDINATES[name], value) for name, value in values.items()}
    await _store(group, slot, cells)


async def _update(group: zarr.Group, slot: int, values: Mapping[str, Cell]) -> None:
    cells = {name: _encoded(STEP_COORDINATES[name], value) for name, value in values.items()}
    empty = [name for name, cell in cells.items() if cell == _blank(name)]
    held = dict(zip(empty, await _stored(group, slot, empty), strict=True))
    written = {name: cell for name, cell in cells.items() if cell != held.get(name)}
    await _store(group, slot, written)


async def _store(group: zarr.Group, slot: int, cells: Mapping[str, bytes]) -> None:
    buffer = default_buffer_prototype().buffer
    await asyncio.gather(
        *(
            group.store.set(_key(group, name, slot), buffer.from_bytes(cell))
            for name, cell in cells.items()
        )
    )


def _key(group: zarr.Group, name: str, slot: int) -> str:
    return f"{group.path}/{name}/c/{slot}"


def _blank(name: str) -> bytes:
    """Return the stored form of what a value that was never written reads as."""
    variable = STEP_COORDINATES[name]
    return _encoded(variable, fill_value(variable))


def _encoded(variable: Variable, value: Cell) -> bytes:
    if variable.dtype == "str":
        text = str(value).encode()
        return _STRING_HEADER.pack(1, len(text)) + text
    return np.array(value, dtype=np.dtype(variable.dtype).newbyteorder("<")).tobytes()


def _decoded(variable: Variable, encoded: bytes) -> Cell:
    if variable.dtype == "str":
        return encoded[_STRING_HEADER.size :].decode()
    value: Cell = np.frombuffer(encoded, np.dtype(variable.dtype).newbyteorder("<"))[0].item()
    return value
