"""The bytes of a block of values, shuffled, as one zstd frame made without a search for runs.

Planes of bytes that are noise, and planes of nothing but zeros, need no compressor: the frame says
of a stretch of them that its bytes follow as they are, or which byte it repeats. Only what comes
after them goes through zstd, whose frame is taken apart for its blocks.
"""

from __future__ import annotations

import enum
import struct
import threading
from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import zstandard

WORD: Final = 4
"""Bytes of a value."""

Words: TypeAlias = npt.NDArray[np.uint32]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_FRAME: Final = struct.Struct("<IBI")
"""Magic number, descriptor, bytes of the content."""

_MAGIC, _ONE_SEGMENT = 0xFD2FB528, 0x80 | 0x20
"""How a frame begins whose content has a length of four bytes and is its own window."""

LONGEST_BLOCK: Final = 1 << 17
"""Bytes that a block of a frame may hold."""

_BLOCK_HEADER: Final = 3

_SAMPLE: Final = 4096
_EVENNESS: Final = 0.1
"""Excess of the chance that two bytes are equal over that of noise, below which zstd saves less
than the 64th part that it asks for."""


class Plane(enum.Enum):
    """What the bytes of one significance are, as far as a compressor could be spared."""

    NOISE = 0
    ZEROS = 1


def leading_planes(words: Words) -> list[Plane]:
    """Judge by a sample of a chunk's values which of their bytes, lowest first, need no compressor.

    Args:
        words: The values' bits (value,).

    Returns:
        What the lowest bytes are, up to the first that may be made shorter; at most three.
    """
    # An odd stride meets every dimension of a row in turn.
    sample = np.ascontiguousarray(words[:: len(words) // _SAMPLE | 1])
    planes = sample.view(np.uint8).reshape(-1, WORD)
    found: list[Plane] = []
    for plane in planes.T[: WORD - 1]:
        counts = np.bincount(plane, minlength=256)
        count = len(plane)
        pairs = int(np.dot(counts, counts)) - count
        if counts[0] == count:
            found.append(Plane.ZEROS)
        elif 256 * pairs < (1 + _EVENNESS) * count * count:
            found.append(Plane.NOISE)
        else:
            break
    return found


def longest_stream(size: int) -> int:
    """Return how many bytes a block of so many may take, before it is known to be worth it."""
    return size + 64 + WORD * _BLOCK_HEADER * (size // LONGEST_BLOCK + 2)


def write_stream(words: Words, planes: Sequence[Plane], room: Bytes) -> tuple[int, bool]:
    """Write the shuffled bytes of a block of values as one zstd frame.

    Args:
        words: The values' bits (value,).
        planes: What the lowest bytes were found to be in a sample.
        room: Where to, :func:`longest_stream` bytes or more.

    Returns:
        Bytes written. If zstd makes a block no shorter, they are as many as it has, and the
        shuffled bytes themselves. Then, whether no value is as large as 2 to the power of 127,
        infinite or NaN, which the plane of exponents tells in a fifth of the time.
    """
    count = len(words)
    if Plane.ZEROS in planes and not _are_zeros(words, planes):
        planes = planes[: planes.index(Plane.ZEROS)]
    _FRAME.pack_into(room.data, 0, _MAGIC, _ONE_SEGMENT, WORD * count)
    targets, end = _lay_out(planes, count, room)
    rest = _room.bytes_of(WORD - len(planes), count)
    targets += [_pieces(plane) for plane in rest]
    _shuffle(words, targets)
    moderate = _are_moderate(rest[-1])
    blocks = _blocks(_room.zstd.compress(rest.data))
    if end + len(blocks) >= words.nbytes:
        _shuffle(words, [_pieces(plane) for plane in room[: words.nbytes].reshape(WORD, count)])
        return words.nbytes, moderate
    room[end : end + len(blocks)] = np.frombuffer(blocks, np.uint8)
    return end + len(blocks), moderate


def _are_moderate(highest: Bytes) -> bool:
    """Return whether no sign and upper seven bits of an exponent are those of the largest."""
    positive, negative = 0x7F, 0xFF
    return int(highest.max()) < negative and int(highest.view(np.int8).max()) < positive


def _are_zeros(words: Words, planes: Sequence[Plane]) -> bool:
    """Return whether the bytes that were zero in a sample are zero in all of a block."""
    mask = sum(0xFF << 8 * byte for byte, plane in enumerate(planes) if plane is Plane.ZEROS)
    return int(np.bitwise_or.reduce(words)) & mask == 0


def _lay_out(planes: Sequence[Plane], count: int, room: Bytes) -> tuple[list[list[Bytes]], int]:
    """Write the heads of the blocks of planes that are not compressed.

    Returns:
        Where the bytes of each plane go, block by block, none for zeros; and where the frame
        goes on.
    """
    targets: list[list[Bytes]] = []
    end = _FRAME.size
    for plane in planes:
        pieces: list[Bytes] = []
        for start in range(0, count, LONGEST_BLOCK):
            length = min(LONGEST_BLOCK, count - start)
            head = (length << 3 | plane.value << 1).to_bytes(_BLOCK_HEADER, "little")
            room[end : end + _BLOCK_HEADER] = np.frombuffer(head, np.uint8)
            end += _BLOCK_HEADER
            if plane is Plane.ZEROS:
                room[end], length = 0, 1
            else:
                pieces.append(room[end : end + length])
            end += length
        targets.append(pieces)
    return targets, end


def _pieces(plane: Bytes) -> list[Bytes]:
    return [plane[start : start + LONGEST_BLOCK] for start in range(0, len(plane), LONGEST_BLOCK)]


def _shuffle(words: Words, targets: Sequence[Sequence[Bytes]]) -> None:
    """Put the bytes of values where those of their significance go, if they go anywhere.

    Narrowing twice keeps to loops that NumPy has vector code for: a third of the time of a
    transpose.
    """
    for low in (0, 2):
        lower, higher = targets[low : low + 2]
        for number in range(max(len(lower), len(higher))):
            start = number * LONGEST_BLOCK
            part = words[start : start + LONGEST_BLOCK]
            half = _room.half[: len(part)]
            if low == 0:
                np.copyto(half, part, casting="unsafe")
            else:
                np.right_shift(part, 16, out=half, casting="unsafe")
            if lower:
                np.copyto(lower[number], half, casting="unsafe")
            if higher:
                np.right_shift(half, 8, out=higher[number], casting="unsafe")


def _blocks(frame: bytes) -> memoryview:
    """Return the blocks of a frame that has neither a dictionary nor a checksum."""
    descriptor = frame[4]
    one_segment = descriptor >> 5 & 1
    length = (one_segment, 2, 4, 8)[descriptor >> 6]
    return memoryview(frame)[5 + (1 - one_segment) + length :]


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
        self.half = np.empty(LONGEST_BLOCK, np.uint16)
        self._bytes = np.empty(0, np.uint8)

    def bytes_of(self, planes: int, count: int) -> Bytes:
        """Return room for so many planes of bytes (plane, value)."""
        if planes * count > len(self._bytes):
            self._bytes = np.empty(planes * count, np.uint8)
        return self._bytes[: planes * count].reshape(planes, count)


_room = _Room()
