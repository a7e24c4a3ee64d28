"""In which file of a store on a disk each chunk of a snapshot lies.

Icechunk tells nobody, and reads a chunk by copying it twice on threads that it wakes. Its format
is published: a snapshot lists arrays and their manifests, a manifest lists chunks and their files,
both as FlatBuffers compressed with zstd. Whatever is not as expected here is left to Icechunk.
"""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import zstandard

Index: TypeAlias = tuple[int, ...]

_MAGIC: Final = "ICE🧊CHUNK".encode()
_HEADER: Final = 39
_KIND: Final = slice(36, 39)
"""Where a file says its version of the format, what it is, and how it is compressed."""

_SNAPSHOT, _MANIFEST = b"\x01\x01\x01", b"\x01\x02\x01"
_LONGEST_ID: Final = 12
_ID_DIGITS: Final = bytes.maketrans(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"
)
"""From the digits of Python's base 32 to Crockford's."""

_UNREADABLE: Final = (OSError, ValueError, IndexError, struct.error, zstandard.ZstdError)


@dataclass(frozen=True)
class ChunkFile:
    """Where the bytes of a chunk are.

    Attributes:
        path: The file.
        offset: First byte.
        length: Number of bytes.
    """

    path: Path
    offset: int
    length: int


@dataclass(frozen=True)
class _Table:
    """A table of a FlatBuffer.

    Attributes:
        data: The whole buffer.
        at: Where the table begins.
    """

    data: bytes
    at: int

    @classmethod
    def root(cls, data: bytes) -> _Table:
        return cls(data, _u32(data, 0))

    def place(self, field: int) -> int | None:
        """Return where a field lies, None where it is left out."""
        table = self.at - struct.unpack_from("<i", self.data, self.at)[0]
        size, entry = struct.unpack_from("<H", self.data, table)[0], 4 + 2 * field
        offset = struct.unpack_from("<H", self.data, table + entry)[0] if entry < size else 0
        return self.at + offset if offset else None

    def bytes_at(self, field: int, length: int) -> bytes:
        """Return a field that is a structure of so many bytes."""
        at = self.place(field)
        if at is None or at + length > len(self.data):
            raise ValueError(f"field {field} is not there")
        return self.data[at : at + length]

    def number(self, field: int) -> int:
        """Return a field that is a number of 64 bits, zero where it is left out."""
        return 0 if self.place(field) is None else int.from_bytes(self.bytes_at(field, 8), "little")

    def vector(self, field: int) -> tuple[int, int]:
        """Return where the first element of a vector lies, and the number of elements."""
        at = self.place(field)
        if at is None:
            raise ValueError(f"field {field} is not there")
        at += _u32(self.data, at)
        return at + 4, _u32(self.data, at)

    def numbers(self, field: int, each: int = 1) -> npt.NDArray[np.uint32]:
        """Return a vector of numbers of 32 bits, or of structures of so many of them."""
        at, count = self.vector(field)
        return np.frombuffer(self.data, "<u4", count * each, at)

    def table(self, field: int) -> _Table:
        at = self.place(field)
        if at is None:
            raise ValueError(f"field {field} is not there")
        return _Table(self.data, at + _u32(self.data, at))

    def tables(self, field: int) -> list[_Table]:
        """Return a vector of tables."""
        at, count = self.vector(field)
        return [self._element(at + 4 * number) for number in range(count)]

    def search(self, field: int, index: Index) -> int | None:
        """Return which table of a sorted vector has an index as its first field, None without."""
        at, high = self.vector(field)
        low = 0
        while low < high:
            middle = (low + high) // 2
            own = self._element(at + 4 * middle).index()
            if own == index:
                return middle
            low, high = (middle + 1, high) if own < index else (low, middle)
        return None

    def element(self, field: int, number: int) -> _Table | None:
        """Return one table of a vector, None where it has fewer."""
        at, count = self.vector(field)
        return self._element(at + 4 * number) if number < count else None

    def index(self) -> Index:
        """Return the first field, numbers of 32 bits."""
        at, count = self.vector(0)
        return struct.unpack_from(f"<{count}I", self.data, at)

    def _element(self, at: int) -> _Table:
        return _Table(self.data, at + _u32(self.data, at))


class ChunkFiles:
    """The files of one array's chunks in one snapshot.

    Args:
        directory: Directory of the store.
        snapshot: Id of the snapshot.
        array: Path of the array.
    """

    def __init__(self, directory: Path, snapshot: str, array: str) -> None:
        self._directory, self._snapshot, self._array = directory, snapshot, array
        self._chunks = directory / "chunks"
        self._last: tuple[_Table, int] | None = None
        """The array in the manifest that lists the last chunk that was found, and its number."""

    def find(self, index: Index) -> ChunkFile | None:
        """Say where a chunk lies.

        Args:
            index: Its number along each dimension.

        Returns:
            None where it has no file of its own, or where that cannot be learnt here.
        """
        try:
            return self._found(index)
        except _UNREADABLE:
            return None

    def _found(self, index: Index) -> ChunkFile | None:
        reference = self._following(index) or self._searched(index)
        # Without an id it is kept in the manifest, or elsewhere.
        if reference is None or reference.place(4) is None:
            return None
        path = self._chunks / _name(reference.bytes_at(4, _LONGEST_ID))
        return ChunkFile(path, reference.number(2), reference.number(3))

    def _following(self, index: Index) -> _Table | None:
        """Look where the manifest of the last chunk goes on: most are asked for in its order."""
        if self._last is None:
            return None
        array, number = self._last
        reference = array.element(1, number + 1)
        if reference is None or reference.index() != index:
            return None
        self._last = array, number + 1
        return reference

    def _searched(self, index: Index) -> _Table | None:
        node, manifests, extents = self._manifests
        inside = (extents[:, :, 0] <= index) & (extents[:, :, 1] > index)
        for place in np.flatnonzero(inside.all(axis=1)).tolist():
            for array in _read(self._directory / "manifests" / manifests[place], _MANIFEST):
                number = array.search(1, index) if array.bytes_at(0, 8) == node else None
                if number is not None:
                    self._last = array, number
                    return array.element(1, number)
        return None

    @cached_property
    def _manifests(self) -> tuple[bytes, list[str], npt.NDArray[np.uint32]]:
        """Id of the array, its manifests, and which chunks each may list (manifest, dim, 2)."""
        path = f"/{self._array}".encode()
        for node in _read(self._directory / "snapshots" / self._snapshot, _SNAPSHOT):
            at, length = node.vector(1)
            if node.data[at : at + length] == path:
                manifests = node.table(4).tables(2)
                names = [_name(each.bytes_at(0, _LONGEST_ID)) for each in manifests]
                extents = np.array([each.numbers(1, each=2) for each in manifests])
                return node.bytes_at(0, 8), names, extents.reshape(len(names), -1, 2)
        raise ValueError(f"{self._array} is not in the snapshot")


@lru_cache(maxsize=16)
def _read(path: Path, kind: bytes) -> list[_Table]:
    """Return the nodes of a snapshot, or the arrays of a manifest."""
    content = path.read_bytes()
    if not content.startswith(_MAGIC) or content[_KIND] != kind:
        raise ValueError(f"{path} is something else")
    data = zstandard.ZstdDecompressor().decompressobj().decompress(content[_HEADER:])
    return _Table.root(data).tables(2 if kind == _SNAPSHOT else 1)


def _name(identity: bytes) -> str:
    """Return the name of the file with an id."""
    return base64.b32encode(identity).rstrip(b"=").translate(_ID_DIGITS).decode()


def _u32(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])
