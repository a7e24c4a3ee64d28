"""What is wrong with a chunk that cannot be read: lost, cut, changed, or out of reach."""

from __future__ import annotations

from typing import Final

import icechunk
import numpy as np
import numpy.typing as npt

from .chunk_place import ChunkPlace
from .errors import CorruptChunkError, MissingChunkError, StoreError, TruncatedChunkError
from .translation import first_line

CRC_BYTES: Final = 4
"""Length of the checksum after the encoded values."""

_BLOSC_LENGTH = slice(12, 16)
"""Where a Blosc header holds the number of encoded bytes."""


_SIGNS_OF_LOSS = ("not found", "NoSuchKey")
_SIGNS_OF_CUTTING = ("range was invalid", "InvalidRange")


def damage(place: str, encoded: npt.NDArray[np.uint8]) -> CorruptChunkError:
    """Tell a cut object from a changed one by the length its Blosc header gives."""
    written = _announced_length(encoded) + CRC_BYTES
    if len(encoded) < max(written, _BLOSC_LENGTH.stop):
        return TruncatedChunkError(place, f"{len(encoded)} bytes are left of {written}")
    return CorruptChunkError(place, f"the checksum of its {len(encoded)} bytes differs")


def is_as_long_as_it_says(chunk: npt.NDArray[np.uint8]) -> bool:
    """Return whether a Blosc chunk has as many bytes as its header says: Blosc takes its word."""
    return len(chunk) >= _BLOSC_LENGTH.stop and len(chunk) == _announced_length(chunk)


def _announced_length(chunk: npt.NDArray[np.uint8]) -> int:
    return int.from_bytes(chunk[_BLOSC_LENGTH].tobytes(), "little")


def explained(error: BaseException | None, place: ChunkPlace) -> BaseException:
    """Tell a lost chunk and a cut one from a store that cannot be reached."""
    if error is None:
        return MissingChunkError(str(place))
    if not isinstance(error, icechunk.IcechunkError):
        return error
    # Icechunk has one kind of error; what an object store answered is only in its text.
    text = str(error)
    if any(sign in text for sign in _SIGNS_OF_LOSS):
        return MissingChunkError(str(place))
    if any(sign in text for sign in _SIGNS_OF_CUTTING):
        return TruncatedChunkError(str(place), "its object is shorter than what was written")
    return StoreError(f"cannot read {place}: {first_line(error)}")
