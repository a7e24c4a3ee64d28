"""Gives memory that is not used back to the system, which the C library would keep."""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

_PRIVATE: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_ADVICE: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)
_LARGE_PAGE: Final = 1 << 21
_MOST_KEPT: Final = 80 << 20
_MEMORY_STATUS: Final = Path("/proc/self/statm")


def give_back_freed() -> None:
    """Return freed memory to the system, where the C library can be asked to (glibc).

    What threads free in turn with what they take lies between what is still used, and stays with
    the process: as much again as all that is in use, after a while.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class FreedMemory:
    """Keeps what a process holds of freed memory from growing batch by batch.

    glibc finds no room for an aligned tensor where one of the same size was freed, once something
    small that lives longer has taken the few bytes beside it: the heap grows, without an end, by
    what is free within it. To give it all back costs page faults, so it is done when there is much
    of it; where windows are large, after every batch.
    """

    def __init__(self) -> None:
        self._least: int | None = None

    def giving_back(
        self, progress: Callable[[int], None] | None, *, always: bool
    ) -> Callable[[int], None]:
        """Return what is to be told of each batch of a window, and then looks or gives back.

        Args:
            progress: What else is to be told.
            always: Whether to give back however little there may be.
        """

        def report(count: int) -> None:
            # Not what is there after it was given back: the next batch needs room again.
            held = resident()
            self._least = min(held, self._least or held)
            if always or held > self._least + _MOST_KEPT:
                give_back_freed()
            if progress is not None:
                progress(count)

        return report


def resident() -> int:
    """Return the bytes of this process that are in memory, 0 where the system does not say."""
    try:
        pages = int(_MEMORY_STATUS.read_text().split()[1])
    except FileNotFoundError:
        return 0
    return pages * mmap.PAGESIZE


def passing(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return an array whose memory goes back to the system as soon as nothing refers to it.

    Its pages are large ones, where the system has them, since each that is touched first takes it
    microseconds.
    """
    count = math.prod(shape)
    size = max(1, 4 * count)
    whole = size // _LARGE_PAGE * _LARGE_PAGE if _ADVICE is not None else 0
    # Only what is as long as some large pages is laid where they begin, and shared memory, which
    # Python asks for by itself, has none.
    rest = _LARGE_PAGE if whole and size > whole else size - whole
    held = mmap.mmap(-1, whole + rest, flags=_PRIVATE)
    if whole and _ADVICE is not None:
        # What is left over stays in small pages: much of one more would never be touched.
        held.madvise(_ADVICE, 0, whole)
    return np.frombuffer(held, dtype=np.float32, count=count).reshape(shape)
