"""Creating and resizing the arrays of a model's group, each from its one declaration."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np
import numpy.typing as npt
import zarr
from zarr.abc.codec import BytesBytesCodec
from zarr.abc.store import Store
from zarr.buffer import default_buffer_prototype
from zarr.core.common import ZARR_JSON
from zarr.core.metadata import ArrayV3Metadata
from zarr.core.sync import sync
from zarr.storage import MemoryStore

from .codec import DEFAULT_CODEC, Codec
from .identity import JSON
from .layout import (
    BYTES_PER_CHUNK,
    TEXTS_PER_CHUNK,
    TOKENS_PER_CHUNK,
    activation_codecs,
    chunk_shape,
    fill_value,
    table_codecs,
    token_chunks,
)
from .schema import (
    CHECKSUM_SUFFIX,
    STEP,
    STEP_COORDINATES,
    TEXT,
    TOKEN,
    TOKEN_CHUNK,
    Variable,
    checksum_variable,
    site_variable,
    sites_among,
)

_SET_AT_ONCE: Final = 16


@contextmanager
def laid_aside(group: zarr.Group) -> Iterator[zarr.Group]:
    """Give the same group in memory, and put what was created in it into the store at the end.

    For each array that it creates, Zarr asks a store several times what is there, one question
    after the other. Nothing is put into the store if the context is left by an exception.

    Args:
        group: A group; what is created in it must not be there.
    """
    memory = MemoryStore()
    yield zarr.open_group(memory, path=group.path, mode="w-", attributes=group.attrs.asdict())
    sync(_brought(memory, group))


async def _brought(memory: MemoryStore, group: zarr.Group) -> None:
    prototype = default_buffer_prototype()
    setting = asyncio.Semaphore(_SET_AT_ONCE)

    async def bring(key: str) -> None:
        async with setting:
            value = await memory.get(key, prototype)
            assert value is not None
            await group.store.set(key, value)

    own = f"{group.path}/{ZARR_JSON}"
    keys = [key async for key in memory.list_prefix(f"{group.path}/") if key != own]
    # An array has to be there before its chunks.
    arrays = {key for key in keys if key.endswith(ZARR_JSON)}
    await asyncio.gather(*map(bring, arrays))
    await asyncio.gather(*(bring(key) for key in keys if key not in arrays))


def create_table(
    group: zarr.Group, variable: Variable, values: npt.NDArray[np.generic]
) -> zarr.Array[ArrayV3Metadata]:
    """Create an array of one dimension that is known whole, and write it."""
    rows = TEXTS_PER_CHUNK if TEXT in variable.dims else TOKENS_PER_CHUNK
    chunks = (max(1, min(rows, len(values))),)
    array = _create(group, variable, values.shape, chunks, codecs=table_codecs())
    array[:] = values if variable.dtype == "str" else values.astype(variable.dtype)
    return array


def string_column(values: Sequence[str]) -> npt.NDArray[np.generic]:
    """Return texts as an array of them."""
    return np.array(list(values), dtype=np.dtypes.StringDType())


def create_bytes(group: zarr.Group, variable: Variable) -> zarr.Array[ArrayV3Metadata]:
    """Create an array of bytes that is appended to."""
    return _create(group, variable, (0,), (BYTES_PER_CHUNK,), codecs=table_codecs())


def create_step_coordinates(group: zarr.Group, capacity: int) -> None:
    """Create the per-step coordinates: one chunk a step, so that writers never meet in one."""
    sync(_create_each(group, STEP_COORDINATES.values(), (capacity,), (1,)))


def add_step_coordinates(group: zarr.Group) -> None:
    """Create the per-step coordinates that a group of an earlier version of actlas lacks."""
    keys = [f"{group.path}/{name}/zarr.json" for name in STEP_COORDINATES]
    found = sync(_exist(group.store, keys))
    for variable, exists in zip(STEP_COORDINATES.values(), found, strict=True):
        if not exists:
            _create(group, variable, (step_capacity(group),), (1,))


def create_site(
    group: zarr.Group,
    variable: Variable,
    sizes: Mapping[str, int],
    capacity: int,
    codec: Codec = DEFAULT_CODEC,
) -> None:
    """Create the array of a site and the array of its checksums.

    Args:
        group: A model's group.
        variable: The site.
        sizes: Size of every dimension of the site except ``step``.
        capacity: Number of slots of the group.
        codec: What its chunks are compressed with.
    """
    rows = group.attrs["chunk_rows"]
    assert isinstance(rows, int)
    every = {STEP: capacity, **sizes}
    shape = tuple(every[name] for name in variable.dims)
    chunks = chunk_shape(variable, sizes, rows)
    _create(group, variable, shape, chunks, codecs=activation_codecs(codec))
    checksums = checksum_variable(variable)
    every[TOKEN_CHUNK] = token_chunks(sizes[TOKEN], rows)
    shape = tuple(every[name] for name in checksums.dims)
    _create(group, checksums, shape, (1, *shape[1:]))


def sites_of(group: zarr.Group) -> tuple[str, ...]:
    """Return the sites that a model's group has arrays for, in the order of their declaration."""
    return sites_among(sync(_children(group.store, group.path)))


async def _children(store: Store, path: str) -> list[str]:
    return [name async for name in store.list_dir(path)]


async def _exist(store: Store, keys: Sequence[str]) -> list[bool]:
    return await asyncio.gather(*(store.exists(key) for key in keys))


def step_capacity(group: zarr.Group) -> int:
    """Return the number of slots of a model's group."""
    return member(group, STEP).shape[0]


def read_members(
    group: zarr.Group, names: Iterable[str], shown: slice = slice(None)
) -> dict[str, npt.NDArray[np.generic]]:
    """Read arrays of a group side by side.

    Args:
        group: The group.
        names: Their names.
        shown: What is read of the first dimension of each.

    Raises:
        KeyError: If the group has no such array.
    """
    wanted = list(dict.fromkeys(names))
    return dict(zip(wanted, sync(_read_each(group, wanted, shown)), strict=True))


async def _read_each(
    group: zarr.Group, names: Sequence[str], shown: slice
) -> list[npt.NDArray[np.generic]]:
    async def read(name: str) -> npt.NDArray[np.generic]:
        array = await group._async_group.getitem(name)
        if not isinstance(array, zarr.AsyncArray):
            raise KeyError(f"{name!r} in {group.path!r} is a group, not an array")
        return np.asarray(await array.getitem(shown))

    return await asyncio.gather(*map(read, names))


def member(group: zarr.Group, name: str) -> zarr.Array[ArrayV3Metadata]:
    """Return an array of a group by its name.

    Raises:
        KeyError: If the group has no such array.
    """
    array = group[name]
    if not isinstance(array, zarr.Array):
        raise KeyError(f"{name!r} in {group.path!r} is a group, not an array")
    return array


def grow(group: zarr.Group, slots: int) -> None:
    """Lengthen the step axis of every array of a model's group by a number of slots."""
    capacity = step_capacity(group) + slots
    sites = sites_of(group)
    for name in (*STEP_COORDINATES, *sites, *(site + CHECKSUM_SUFFIX for site in sites)):
        array = member(group, name)
        array.resize((capacity, *array.shape[1:]))


def resize_tokens(group: zarr.Group, n_tokens: int) -> None:
    """Lengthen the token axis of every site of a model's group, and of its checksums."""
    rows = group.attrs["chunk_rows"]
    assert isinstance(rows, int)
    for site in sites_of(group):
        array, checksums = member(group, site), member(group, site + CHECKSUM_SUFFIX)
        sizes = zip(site_variable(site).dims, array.shape, strict=True)
        array.resize(tuple(n_tokens if dim == TOKEN else size for dim, size in sizes))
        checksums.resize((*checksums.shape[:-1], token_chunks(n_tokens, rows)))


def _create(
    group: zarr.Group,
    variable: Variable,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    codecs: Sequence[BytesBytesCodec] | None = None,
) -> zarr.Array[ArrayV3Metadata]:
    return zarr.Array(sync(_created(group, variable, shape, chunks, codecs)))


async def _create_each(
    group: zarr.Group,
    variables: Iterable[Variable],
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
) -> None:
    """Create arrays of one shape side by side."""
    await asyncio.gather(*(_created(group, each, shape, chunks, None) for each in variables))


async def _created(
    group: zarr.Group,
    variable: Variable,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    codecs: Sequence[BytesBytesCodec] | None,
) -> zarr.AsyncArray[ArrayV3Metadata]:
    attributes: dict[str, JSON] = {"long_name": variable.description}
    if variable.units:
        attributes["units"] = variable.units
    return await group._async_group.create_array(
        variable.name,
        shape=shape,
        chunks=chunks,
        dtype=str if variable.dtype == "str" else variable.dtype,
        compressors=codecs,
        fill_value=fill_value(variable),
        dimension_names=list(variable.dims),
        attributes=attributes,
        config={"write_empty_chunks": True},
    )
