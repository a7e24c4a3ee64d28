"""Gives memory that is not used back to the system, which the C library would keep."""

from __future__ import annotations

import ctypes


def give_back_freed() -> None:
    """Return freed memory to the system, where the C library can be asked to (glibc).

    Passes over rows and searches for neighbours take buffers of other sizes in turn; what one has
    freed lies between what is still used, and does for little of what the other needs.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
