"""Encoding one chunk of activations: a Blosc chunk as any reader of Blosc decodes it, and its CRC.

Shuffled by bytes, activations are planes of mantissas, which are noise, and planes of exponents,
which take few values but hardly ever repeat in runs. Coding the values by their frequency finds
all there is to save; zstd as Blosc calls it spends two thirds of its time on a search for runs,
and what it finds costs more bytes than it saves. So large chunks are put together here, block by
block, of zstd streams made without that search, unless their rows repeat.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, Self

import google_crc32c
import numpy as np
import numpy.typing as npt
import zarr
from numcodecs import blosc
from zarr.codecs import BloscCodec
from zarr.core.metadata import ArrayV3Metadata

from .chunk_faults import CRC_BYTES
from .zstd_streams import WORD, Words, leading_planes, longest_stream, write_stream

Floats = npt.NDArray[np.float32]

_SHUFFLES: Final = {
    "noshuffle": blosc.NOSHUFFLE,
    "shuffle": blosc.SHUFFLE,
    "bitshuffle": blosc.BITSHUFFLE,
}
_HEADER: Final = struct.Struct("<BBBBIII")
"""Format, version of zstd's use, flags, bytes of a value; bytes in all, of a block, encoded."""

_FORMAT, _ZSTD_FORMAT = 2, 1
_FLAGS: Final = 0x01 | 0x10 | 4 << 5
"""Bytes are shuffled; a block is one stream; of zstd."""

_LENGTH: Final = struct.Struct("<i")
_OVERHEAD: Final = 16
"""Bytes by which a chunk may be longer than its values."""

FEWEST_BYTES: Final = 1 << 16
"""Size below which what each chunk costs in Python outweighs what is gained in zstd."""

_ROWS_LOOKED_AT: Final = 1024
_REPEATED_SHARE: Final = 1 / 16


@dataclass(frozen=True)
class EncodedChunk:
    """One chunk as it is stored.

    Attributes:
        data: A Blosc chunk, and its CRC-32C.
        known_finite: Whether all of its values are known to be finite; False says nothing.
    """

    data: memoryview
    known_finite: bool


@dataclass(frozen=True)
class ChunkEncoding:
    """How the chunks of one activation array are encoded, as its metadata says.

    Attributes:
        cname: Compressor.
        clevel: Its level.
        shuffle: ``"shuffle"`` for bytes, ``"bitshuffle"`` for bits, or ``"noshuffle"``.
        typesize: Bytes of a value.
        blocksize: Bytes of a block.
    """

    cname: str
    clevel: int
    shuffle: str
    typesize: int
    blocksize: int

    @classmethod
    def of(cls, array: zarr.Array[ArrayV3Metadata]) -> Self:
        """Return how the chunks of an activation array are encoded."""
        (codec,) = (item for item in array.compressors if isinstance(item, BloscCodec))
        return cls(
            codec.cname.value,
            codec.clevel,
            codec.shuffle.value,
            codec.typesize,
            codec.blocksize,
        )

    def encode(self, chunk: Floats) -> EncodedChunk:
        """Encode a whole chunk, C-contiguous, and put the CRC-32C of the encoded bytes after it.

        Args:
            chunk: The values; its last dimension is a row.
        """
        room = np.empty(chunk.nbytes + self._most_added(chunk.nbytes), np.uint8)
        end, finite = self._without_search(chunk, room) or (self._by_blosc(chunk, room), False)
        crc = google_crc32c.value(room[:end])
        room[end : end + CRC_BYTES] = np.frombuffer(crc.to_bytes(CRC_BYTES, "little"), np.uint8)
        encoded = room[: end + CRC_BYTES]
        # What waits for the disk or the network must not hold room that is mostly empty.
        kept = encoded if 2 * len(encoded) > len(room) else encoded.copy()
        return EncodedChunk(kept.data, finite)

    def _most_added(self, size: int) -> int:
        """Return how many bytes more than its values a chunk may take while it is put together."""
        blocks = -(-size // self.blocksize)
        block = min(size, self.blocksize)
        return _OVERHEAD + CRC_BYTES + blocks * (2 * _LENGTH.size + longest_stream(block) - block)

    def _by_blosc(self, chunk: Floats, room: npt.NDArray[np.uint8]) -> int:
        encoded = blosc.compress(
            chunk,
            self.cname.encode(),
            self.clevel,
            _SHUFFLES[self.shuffle],
            self.blocksize,
            self.typesize,
        )
        room[: len(encoded)] = np.frombuffer(encoded, np.uint8)
        return len(encoded)

    def _without_search(
        self, chunk: Floats, room: npt.NDArray[np.uint8]
    ) -> tuple[int, bool] | None:
        """Put a chunk together, or return None where that is not for us.

        Returns:
            Where it ends, and whether its values are known to be finite.
        """
        usual = (self.cname, self.clevel, self.shuffle, self.typesize) == ("zstd", 1, "shuffle", 4)
        size = min(self.blocksize, chunk.nbytes)
        if not usual or size % WORD or chunk.nbytes < FEWEST_BYTES or _rows_repeat(chunk):
            return None
        words: Words = chunk.reshape(-1).view("<u4")
        planes = leading_planes(words)
        starts: list[int] = []
        end, finite = _HEADER.size + 4 * -(-chunk.nbytes // size), True
        for start in range(0, len(words), size // WORD):
            starts.append(end)
            block = words[start : start + size // WORD]
            length, moderate = write_stream(block, planes, room[end + _LENGTH.size :])
            finite &= moderate
            _LENGTH.pack_into(room.data, end, length)
            end += _LENGTH.size + length
        if end > chunk.nbytes + _OVERHEAD:
            return None
        _HEADER.pack_into(
            room.data, 0, _FORMAT, _ZSTD_FORMAT, _FLAGS, WORD, chunk.nbytes, size, end
        )
        struct.pack_into(f"<{len(starts)}I", room.data, _HEADER.size, *starts)
        return end, finite


def _rows_repeat(chunk: Floats) -> bool:
    """Return whether many rows begin as others do, as those of embeddings without a position do.

    Then a search pays. Padding, which is NaN, does not count.
    """
    rows = chunk.reshape(-1, chunk.shape[-1])[:_ROWS_LOOKED_AT, :2]
    if rows.shape[1] < 2:
        return False
    starts = np.ascontiguousarray(rows[~np.isnan(rows[:, 0])]).view(np.uint64)
    return len(np.unique(starts)) < (1 - _REPEATED_SHARE) * len(starts)
