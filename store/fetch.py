"""The encoded chunks of one array: read where they lie on a disk, or through Icechunk."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import zarr
from icechunk import IcechunkStore
from zarr.buffer import default_buffer_prototype
from zarr.core.metadata import ArrayV3Metadata
from zarr.core.sync import sync

from .large_pages import PageRoom
from .manifest_files import ChunkFile, ChunkFiles, Index

Bytes = npt.NDArray[np.uint8]

CHUNKS_AT_ONCE: Final = 4
"""Encoded chunks fetched together: enough to hide the latency of a disk or an object store."""

_READ_AHEAD: Final = 1 << 17
"""Bytes that Linux reads ahead for one call that asks for it."""

_IF_CACHED: Final[int] = getattr(os, "RWF_NOWAIT", 0)

_room = PageRoom()


class EncodedChunks:
    """Fetches encoded chunks of an array.

    Args:
        array: The array, as a session sees it.
        directory: Directory of the store, None where it is not on a disk.
    """

    def __init__(self, array: zarr.Array[ArrayV3Metadata], directory: Path | None) -> None:
        self._store, self._prefix = array.store, array.store_path.path
        self._prototype = default_buffer_prototype()
        self._files: ChunkFiles | None = None
        # A transaction may hold chunks of its own; a snapshot stays as it is.
        if directory is None or not hasattr(os, "preadv"):
            return
        if isinstance(self._store, IcechunkStore):
            session = self._store.session
            if session.read_only:
                self._files = ChunkFiles(directory, str(session.snapshot_id), self._prefix)

    def fetch(
        self, indices: Sequence[Index], later: Sequence[Index] = ()
    ) -> Iterator[Bytes | BaseException | None]:
        """Fetch chunks, some at once.

        Args:
            indices: Number of each along every dimension of the array.
            later: Those of chunks that are likely to be asked for next.

        Yields:
            The bytes of each, valid until the next one is asked for in the same thread; None if
            it was never written, or what is wrong.
        """
        find = cache(self._files.find) if self._files else None
        for first in range(0, len(indices), CHUNKS_AT_ONCE):
            batch = indices[first : first + CHUNKS_AT_ONCE]
            files = [file for file in map(find, batch) if file] if find else []
            if find is None or len(files) < len(batch):
                yield from sync(self.through_icechunk(batch))
            else:
                coming = _Coming(find, [*indices[first:], *later])
                yield from self._from_disk(batch, files, coming)

    async def through_icechunk(
        self, indices: Sequence[Index]
    ) -> list[Bytes | BaseException | None]:
        """Fetch chunks side by side."""
        keys = [f"{self._prefix}/c/" + "/".join(map(str, index)) for index in indices]
        buffers = await asyncio.gather(
            *(self._store.get(key, self._prototype) for key in keys), return_exceptions=True
        )
        return [
            found if found is None or isinstance(found, BaseException) else found.as_numpy_array()
            for found in buffers
        ]

    def _from_disk(
        self, indices: Sequence[Index], files: Sequence[ChunkFile], coming: _Coming
    ) -> Iterator[Bytes | BaseException | None]:
        """Read chunks one after the other; Icechunk says what is wrong with one that is not so."""
        for number, file in enumerate(files):
            encoded = _read(file, partial(coming.announce, number))
            if encoded is None:
                yield from sync(self.through_icechunk(indices[number : number + 1]))
            else:
                yield encoded


class _Coming:
    """Chunks to be read one after the other, of which the disk is told some ahead.

    Args:
        find: Says where each lies.
        indices: Their numbers along each dimension.
    """

    def __init__(self, find: Callable[[Index], ChunkFile | None], indices: Sequence[Index]) -> None:
        self._find, self._indices = find, indices
        self._announced = 0

    def announce(self, number: int) -> None:
        """Let the disk begin with a chunk that has to be waited for, and with those after it."""
        stop = number + CHUNKS_AT_ONCE
        for index in self._indices[max(number, self._announced) : stop]:
            file = self._find(index)
            if file is not None:
                _read_ahead(file)
        self._announced = stop


def _read(file: ChunkFile, announce: Callable[[], None]) -> Bytes | None:
    """Read a chunk, None where there are fewer bytes; say so before the disk is waited for."""
    room = _room.of(file.length)
    try:
        descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        done = 0
        with contextlib.suppress(OSError):
            done = os.preadv(descriptor, [room.data], file.offset, _IF_CACHED)
        if done < file.length:
            announce()
        while done < file.length:
            more = os.preadv(descriptor, [room[done:].data], file.offset + done)
            if more == 0:
                return None
            done += more
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return room


def _read_ahead(file: ChunkFile) -> None:
    """Let the disk begin with a chunk, where the system can be told."""
    advise = getattr(os, "posix_fadvise", None)
    if advise is None:
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for start in range(file.offset, file.offset + file.length, _READ_AHEAD):
                advise(descriptor, start, _READ_AHEAD, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(descriptor)
