"""How much freed memory a process keeps: enough that the next chunk does not fault it in anew.

glibc gives arrays of a few MiB back to the system as they are freed until it has seen some that
are larger: writing and reading a GB of chunks then takes 100,000 to 200,000 page faults, each of
some microseconds on a virtual machine.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Final

KEPT_AT_TOP: Final = 64 << 20
"""Bytes that may stay free at the end of each heap."""

MAPPED_FROM: Final = 32 << 20
"""Size from which memory is asked of the system and given back by itself."""

ENVIRONMENT: Final = {
    "MALLOC_TRIM_THRESHOLD_": str(KEPT_AT_TOP),
    "MALLOC_MMAP_THRESHOLD_": str(MAPPED_FROM),
}
"""The same for a process that is started."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8


@cache
def keep_freed_memory() -> None:
    """Keep what glibc comes to keep once an array of 32 MiB was freed, from now on.

    Nothing happens where the environment says what is kept, or with another C library.
    """
    setting = getattr(ctypes.CDLL(None), "mallopt", None)
    if setting is not None and not any(name in os.environ for name in ENVIRONMENT):
        setting(_TRIM_THRESHOLD, KEPT_AT_TOP)
        setting(_MMAP_THRESHOLD, MAPPED_FROM)


def share_heaps(most: int) -> None:
    """Let all threads take memory from a few heaps, from now on.

    glibc by itself makes eight for each processor, and what is free at the end of any but the first
    stays with the process whatever is given back: one or two chunks for each thread that encodes.
    Nothing happens where the environment says how many there are, or with another C library.

    Args:
        most: Number of heaps. Those that there are stay, so that this comes before threads do.
    """
    setting = getattr(ctypes.CDLL(None), "mallopt", None)
    if setting is not None and "MALLOC_ARENA_MAX" not in os.environ:
        setting(_ARENA_MAX, most)


def give_back_freed() -> None:
    """Return freed memory to the system, where the C library can be asked to (glibc).

    Passes over rows and searches for neighbours take buffers of other sizes in turn; what one has
    freed lies between what is still used, and does for little of what the other needs.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
