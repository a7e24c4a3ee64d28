"""Encoding one chunk of activations: a Blosc chunk as any reader of Blosc decodes it, and its CRC.

Shuffled by bytes, activations are planes of mantissas, which are noise, and planes of exponents,
which take few values but hardly ever repeat in runs. Coding the values by their frequency finds
all there is to save; zstd as Blosc calls it spends two thirds of its time on a search for runs,
and what it finds costs more bytes than it saves. So large chunks are put together here, block by
block, of zstd streams made without that search, unless their rows repeat.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import google_crc32c
import numpy as np
import numpy.typing as npt
import zarr
import zstandard
from numcodecs import blosc
from zarr.codecs import BloscCodec
from zarr.core.metadata import ArrayV3Metadata

from .chunk_faults import CRC_BYTES

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

_WORD: Final = 4
_LENGTH: Final = struct.Struct("<i")
_OVERHEAD: Final = 16
"""Bytes by which a chunk may be longer than its values."""

FEWEST_BYTES: Final = 1 << 16
"""Size below which what each chunk costs in Python outweighs what is gained in zstd."""

_ROWS_LOOKED_AT: Final = 1024
_REPEATED_SHARE: Final = 1 / 16


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

    def encode(self, chunk: Floats) -> bytes:
        """Encode a whole chunk, C-contiguous, and put the CRC-32C of the encoded bytes after it.

        Args:
            chunk: The values; its last dimension is a row.
        """
        pieces = self._without_search(chunk) or [self._by_blosc(chunk)]
        crc = 0
        for piece in pieces:
            crc = google_crc32c.extend(crc, piece)
        return b"".join((*pieces, crc.to_bytes(CRC_BYTES, "little")))

    def _by_blosc(self, chunk: Floats) -> bytes:
        encoded: bytes = blosc.compress(
            chunk,
            self.cname.encode(),
            self.clevel,
            _SHUFFLES[self.shuffle],
            self.blocksize,
            self.typesize,
        )
        return encoded

    def _without_search(self, chunk: Floats) -> list[bytes] | None:
        """Return the parts of a chunk put together here, None where that is not for us."""
        usual = (self.cname, self.clevel, self.shuffle, self.typesize) == ("zstd", 1, "shuffle", 4)
        size = min(self.blocksize, chunk.nbytes)
        if not usual or size % _WORD or chunk.nbytes < FEWEST_BYTES or _rows_repeat(chunk):
            return None
        streams = _streams(chunk.reshape(-1).view("<u4"), size // _WORD)
        starts, end = [], _HEADER.size + 4 * len(streams)
        for stream in streams:
            starts.append(end)
            end += _LENGTH.size + len(stream)
        if end > chunk.nbytes + _OVERHEAD:
            return None
        header = _HEADER.pack(_FORMAT, _ZSTD_FORMAT, _FLAGS, _WORD, chunk.nbytes, size, end)
        parts = [header, struct.pack(f"<{len(starts)}I", *starts)]
        for stream in streams:
            parts += (_LENGTH.pack(len(stream)), stream)
        return parts


def _rows_repeat(chunk: Floats) -> bool:
    """Return whether many rows begin as others do, as those of embeddings without a position do.

    Then a search pays. Padding, which is NaN, does not count.
    """
    rows = chunk.reshape(-1, chunk.shape[-1])[:_ROWS_LOOKED_AT, :2]
    if rows.shape[1] < 2:
        return False
    starts = np.ascontiguousarray(rows[~np.isnan(rows[:, 0])]).view(np.uint64)
    return len(np.unique(starts)) < (1 - _REPEATED_SHARE) * len(starts)


class _Room(threading.local):
    """What a thread encodes with: a compressor, and room for one block."""

    def __init__(self) -> None:
        # A table of 64 places and runs of at least 7 bytes: zstd goes through in ever longer
        # strides, and codes the values by their frequency. Runs of zeros are found all the same.
        parameters = zstandard.ZstdCompressionParameters(
            strategy=zstandard.STRATEGY_FAST,
            hash_log=6,
            min_match=7,
            window_log=20,
            chain_log=6,
            search_log=1,
            target_length=0,
            write_content_size=1,
        )
        self.zstd = zstandard.ZstdCompressor(compression_params=parameters)
        self._words = 0

    def planes(self, words: int) -> npt.NDArray[np.uint8]:
        """Return room for the shuffled bytes (byte of a value, value) of a block."""
        self._fit(words)
        return self._bytes[: _WORD * words].reshape(_WORD, words)

    def narrowed(self, words: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint16]]:
        """Return room for what is between values and their bytes."""
        self._fit(words)
        return self._wide[:words], self._half[:words]

    def _fit(self, words: int) -> None:
        if words > self._words:
            self._words = words
            self._bytes = np.empty(_WORD * words, np.uint8)
            self._wide, self._half = np.empty(words, np.uint32), np.empty(words, np.uint16)


_room = _Room()


def _streams(words: npt.NDArray[np.uint32], words_per_block: int) -> Sequence[bytes]:
    """Return the zstd stream of each block; one that would not be shorter stays as it is."""
    return [
        _stream(words[start : start + words_per_block])
        for start in range(0, len(words), words_per_block)
    ]


def _stream(words: npt.NDArray[np.uint32]) -> bytes:
    planes = _shuffled(words)
    stream = _room.zstd.compress(planes.data)
    return stream if len(stream) < words.nbytes else planes.tobytes()


def _shuffled(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    """Put the bytes of values together by their significance, the least significant first.

    Narrowing twice keeps to loops that NumPy has vector code for: half the time of a transpose.
    """
    planes = _room.planes(len(words))
    wide, half = _room.narrowed(len(words))
    for low in (0, 2):
        source = words if low == 0 else np.right_shift(words, 8 * low, out=wide)
        np.copyto(half, source, casting="unsafe")
        np.copyto(planes[low], half, casting="unsafe")
        np.right_shift(half, 8, out=half)
        np.copyto(planes[low + 1], half, casting="unsafe")
    return planes
