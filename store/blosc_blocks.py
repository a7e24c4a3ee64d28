"""Single blocks of a Blosc chunk, so that a few rows do not cost the decoding of all of it.

A Blosc chunk is a header, the offsets of its blocks, and the blocks, each decodable by itself.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from numcodecs import blosc

_HEADER: Final = 16
_FLAGS: Final = 2
_COPIED: Final = 0x2
"""Flag of a chunk that could not be made smaller: its bytes follow the header as they are."""

Bytes = npt.NDArray[np.uint8]


def decode_range(encoded: Bytes, start: int, stop: int) -> Bytes | None:
    """Decode a range of a chunk's bytes from the blocks that hold it.

    Args:
        encoded: A whole Blosc chunk.
        start: First byte wanted.
        stop: One past the last.

    Returns:
        The bytes (stop - start), or None where the chunk has to be decoded whole: it is one block,
        or the range reaches into a last block that is shorter than the others.

    Raises:
        RuntimeError: If Blosc cannot decode a block.
        ValueError: If the header does not describe the chunk.
    """
    total, block_size, length = np.frombuffer(encoded[4:_HEADER].tobytes(), "<u4").astype(int)
    if length != len(encoded) or stop > total or block_size == 0:
        raise ValueError(f"its header announces {length} bytes, and there are {len(encoded)}")
    if encoded[_FLAGS] & _COPIED:
        return encoded[_HEADER + start : _HEADER + stop]
    first, last = start // block_size, -(-stop // block_size)
    if (last - first) * block_size >= total or last * block_size > total:
        return None
    starts = np.frombuffer(encoded[_HEADER : _HEADER + 4 * last].tobytes(), "<u4").astype(int)
    out = np.empty((last - first, block_size), dtype=np.uint8)
    for block, target in zip(range(first, last), out, strict=True):
        blosc.decompress(_alone(encoded, int(starts[block]), int(block_size)), target)
    return out.reshape(-1)[start - first * block_size : stop - first * block_size]


def _alone(encoded: Bytes, start: int, block_size: int) -> Bytes:
    """Return a chunk that is one block of another: what follows it there is never looked at."""
    offset = _HEADER + 4
    alone = np.empty(offset + len(encoded) - start, dtype=np.uint8)
    alone[:4] = encoded[:4]
    alone[4:offset] = np.array([block_size, block_size, len(alone), offset], "<u4").view(np.uint8)
    alone[offset:] = encoded[start:]
    return alone
