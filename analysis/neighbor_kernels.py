"""Compiled inner loops over rows, and how they are compiled.

Each is a plain function of arrays that releases the interpreter lock. They are compiled once
and cached on disk; where no directory is writable they are compiled anew in each process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numba
import numpy as np
import numpy.typing as npt

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

Floats = npt.NDArray[np.floating]
Integers = npt.NDArray[np.integer]


def compiled(
    *flags: str,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Compile a function with numba, cached on disk wherever a directory is writable.

    Args:
        *flags: LLVM fast-math flags that the function's callers have allowed for.
    """

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        fastmath = set(flags)
        try:
            kernel = numba.njit(nogil=True, cache=True, fastmath=fastmath)(function)
        except RuntimeError:  # neither the package nor a home directory can be written
            kernel = numba.njit(nogil=True, fastmath=fastmath)(function)
        result: Callable[Parameters, Result] = kernel
        return result

    return decorate


@compiled("reassoc", "contract")
def add_rows(rows: Floats, total: Floats) -> None:
    """Add rows (token, dim) to a sum (dim)."""
    for i in range(rows.shape[0]):
        for t in range(rows.shape[1]):
            total[t] += np.float64(rows[i, t])


@compiled("reassoc", "contract")
def square_norms(rows: Floats, norms: Floats) -> None:
    """Write the squared norms (token) of rows (token, dim), summed in float64."""
    for i in range(rows.shape[0]):
        total = 0.0
        for t in range(rows.shape[1]):
            value = np.float64(rows[i, t])
            total += value * value
        norms[i] = total


@compiled()
def hash_rows(words: Integers, negative_zero: np.uint64, hashes: Integers) -> None:
    """Hash rows by their bits, with -0.0 taken for 0.0.

    Args:
        words: The rows' bits as unsigned integers (token, dim).
        negative_zero: The bits of -0.0.
        hashes: Receives a 64-bit hash per row (token).
    """
    for i in range(words.shape[0]):
        state = np.uint64(0x9E3779B97F4A7C15)
        for t in range(words.shape[1]):
            word = np.uint64(words[i, t])
            if word == negative_zero:
                word = np.uint64(0)
            state = (state ^ word) * np.uint64(0xD6E8FEB86659FD93)
            state ^= state >> np.uint64(32)
        hashes[i] = state


@compiled()
def mark_first(
    rows: Floats, order: Integers, hashes: Integers, first: npt.NDArray[np.bool_]
) -> None:
    """Mark the first occurrence of every distinct row.

    Args:
        rows: Rows (token, dim).
        order: Row numbers sorted by hash, then by number (token).
        hashes: Hash per row (token).
        first: All true at the start; set to false where an earlier row is equal (token).
    """
    run = 0
    for place in range(1, order.shape[0]):
        row = order[place]
        if hashes[order[run]] != hashes[row]:
            run = place
            continue
        for earlier in range(run, place):
            if first[order[earlier]] and np.array_equal(rows[order[earlier]], rows[row]):
                first[row] = False
                break
