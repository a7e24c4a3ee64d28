"""Gives memory that is not used back to the system, which the C library would keep."""

from __future__ import annotations

import ctypes
import math
import mmap

import numpy as np
from numpy.typing import NDArray


def give_back_freed() -> None:
    """Return freed memory to the system, where the C library can be asked to (glibc).

    What threads free in turn with what they take lies between what is still used, and stays with
    the process: as much again as all that is in use, after a while.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def passing(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return an array whose memory goes back to the system as soon as nothing refers to it.

    Pages that are never touched take no memory.

    Args:
        shape: Its shape.
    """
    count = math.prod(shape)
    held = mmap.mmap(-1, max(1, 4 * count))
    return np.frombuffer(held, dtype=np.float32, count=count).reshape(shape)
