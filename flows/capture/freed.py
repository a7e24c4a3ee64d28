"""Gives memory that is not used back to the system, which the C library would keep."""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

_PRIVATE: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_ADVICE: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)
_LARGE_PAGE: Final = 1 << 21
_TIMES_A_WINDOW: Final = 4


def give_back_freed() -> None:
    """Return freed memory to the system, where the C library can be asked to (glibc).

    What threads free in turn with what they take lies between what is still used, and stays with
    the process: as much again as all that is in use, after a while.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def giving_back(progress: Callable[[int], None] | None, n_tokens: int) -> Callable[[int], None]:
    """Return a report that gives freed memory back after the first batch of a window, and later.

    What was handed over before is written meanwhile, and its memory freed piece by piece.

    Args:
        progress: What else is to be told of each batch.
        n_tokens: Tokens of the window.
    """
    done = due = 0

    def report(count: int) -> None:
        nonlocal done, due
        done += count
        if done >= due:
            give_back_freed()
            due = done + n_tokens // _TIMES_A_WINDOW
        if progress is not None:
            progress(count)

    return report


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
