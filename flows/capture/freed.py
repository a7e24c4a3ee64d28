"""Gives memory that is not used back to the system, which the C library would keep."""

from __future__ import annotations

import ctypes
import math
import mmap
from typing import Final

import numpy as np
from numpy.typing import NDArray

_PRIVATE: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_ADVICE: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)
_LARGE_PAGE: Final = 1 << 21


def give_back_freed() -> None:
    """Return freed memory to the system, where the C library can be asked to (glibc).

    What threads free in turn with what they take lies between what is still used, and stays with
    the process: as much again as all that is in use, after a while.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def passing(shape: tuple[int, ...], *, filled: bool = True) -> NDArray[np.float32]:
    """Return an array whose memory goes back to the system as soon as nothing refers to it.

    Args:
        shape: Its shape.
        filled: Whether all of it will be written to: then its pages are large ones, where the
            system has them, since each that is touched first takes it microseconds. If not, small
            pages that are never touched take no memory.
    """
    count = math.prod(shape)
    size = max(1, 4 * count)
    whole = size // _LARGE_PAGE * _LARGE_PAGE if filled and _ADVICE is not None else 0
    # Only what is as long as some large pages is laid where they begin, and shared memory, which
    # Python asks for by itself, has none.
    rest = _LARGE_PAGE if whole and size > whole else size - whole
    held = mmap.mmap(-1, whole + rest, flags=_PRIVATE)
    if whole and _ADVICE is not None:
        # What is left over stays in small pages: much of one more would never be touched.
        held.madvise(_ADVICE, 0, whole)
    return np.frombuffer(held, dtype=np.float32, count=count).reshape(shape)
