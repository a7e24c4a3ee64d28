"""Compiled inner loops of the neighbour search.

Each is a plain function of arrays that releases the interpreter lock. They are compiled once
and cached on disk; where no directory is writable they are compiled anew in each process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

import numba
import numpy as np
import numpy.typing as npt

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

Floats = npt.NDArray[np.floating]
Integers = npt.NDArray[np.integer]

UNSEEN: Final = np.float32(1e30)
"""Squared distance of a candidate slot not filled yet; finite, since the scan assumes no inf."""

_STRIP: Final = 64


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


@compiled("fast")
def replace_worst(values: Floats, indices: Integers, token: int, value: float, index: int) -> None:
    """Replace the largest entry of a max-heap and restore the heap.

    Args:
        values: Heaps (token, candidate) of squared distances, the largest first.
        indices: Row number of each candidate (token, candidate).
        token: The heap that is meant.
        value: Squared distance that replaces the largest.
        index: Row number that goes with it.
    """
    size = values.shape[1]
    hole = 0
    child = 1
    while child < size:
        if child + 1 < size and values[token, child + 1] > values[token, child]:
            child += 1
        if values[token, child] <= value:
            break
        values[token, hole] = values[token, child]
        indices[token, hole] = indices[token, child]
        hole = child
        child = 2 * hole + 1
    values[token, hole] = value
    indices[token, hole] = index


@compiled("fast")
def scan_tile(
    products: Floats,
    left: tuple[Floats, Integers, Floats, Integers],
    right: tuple[Floats, Integers, Floats, Integers],
    left_start: int,
    right_start: int,
) -> None:
    """Offer every pair of a tile to the candidate heaps of its row and of its column.

    The squared distance |x|² + |y|² - 2x·y is below the threshold of a heap exactly where x·y
    less a constant of the column exceeds a constant of the row, and whole strips fail that at
    once.

    Args:
        products: Inner products (left token, right token).
        left: Of the rows of the tile: squared norms (token), groups (token), and the heaps
            updated in place, squared distances and row numbers (token, candidate). Pairs of
            equal groups are skipped.
        right: The same of its columns.
        left_start: Row number of the first row of the tile.
        right_start: Row number of its first column; where equal, only the left is updated.
    """
    left_norms, left_groups, left_values, left_indices = left
    right_norms, right_groups, right_values, right_indices = right
    rows, columns = products.shape
    half = np.float32(0.5)
    two = np.float32(2.0)
    both = left_start != right_start
    own = np.empty(columns, np.float32)
    other = np.empty(columns, np.float32)
    for j in range(columns):
        own[j] = half * right_norms[j]
        other[j] = half * (right_norms[j] - right_values[j, 0]) if both else UNSEEN
    for i in range(rows):
        row_limit = half * (left_norms[i] - left_values[i, 0])
        column_limit = half * left_norms[i]
        for start in range(0, columns, _STRIP):
            stop = min(columns, start + _STRIP)
            row_best = -UNSEEN
            column_best = -UNSEEN
            for j in range(start, stop):
                row_best = max(row_best, products[i, j] - own[j])
                column_best = max(column_best, products[i, j] - other[j])
            if row_best > row_limit:
                for j in range(start, stop):
                    excess = products[i, j] - own[j]
                    if excess > row_limit and left_groups[i] != right_groups[j]:
                        value = left_norms[i] - two * excess
                        replace_worst(left_values, left_indices, i, value, j + right_start)
                        row_limit = half * (left_norms[i] - left_values[i, 0])
            if column_best > column_limit:
                for j in range(start, stop):
                    if (
                        products[i, j] - other[j] > column_limit
                        and left_groups[i] != right_groups[j]
                    ):
                        value = left_norms[i] + two * (own[j] - products[i, j])
                        replace_worst(right_values, right_indices, j, value, i + left_start)
                        other[j] = half * (right_norms[j] - right_values[j, 0])


@compiled("fast")
def collect_near(
    products: Floats,
    left: tuple[Floats, Integers],
    right: tuple[Floats, Integers],
    right_start: int,
    limits: Floats,
    near: tuple[Integers, Integers, Floats],
) -> None:
    """Append the columns of a tile that are near to its rows, while there is room for them.

    Args:
        products: Inner products (left token, right token).
        left: Squared norms and groups of its rows (token); pairs of equal groups are skipped.
        right: The same of its columns.
        right_start: Row number of the first column.
        limits: Squared distance up to which a column is near (left token).
        near: How many there are (left token), their row numbers and squared distances
            (left token, candidate), appended to; of a row with more than there is room for, the
            number exceeds the room.
    """
    counts, indices, values = near
    room = indices.shape[1]
    rows, columns = products.shape
    half = np.float32(0.5)
    two = np.float32(2.0)
    own = np.empty(columns, np.float32)
    for j in range(columns):
        own[j] = half * right[0][j]
    for i in range(rows):
        row_limit = half * (left[0][i] - limits[i])
        for start in range(0, columns, _STRIP):
            if counts[i] > room:
                break
            stop = min(columns, start + _STRIP)
            best = -UNSEEN
            for j in range(start, stop):
                best = max(best, products[i, j] - own[j])
            if best >= row_limit:
                for j in range(start, stop):
                    excess = products[i, j] - own[j]
                    if excess >= row_limit and left[1][i] != right[1][j]:
                        if counts[i] < room:
                            indices[i, counts[i]] = j + right_start
                            values[i, counts[i]] = left[0][i] - two * excess
                        counts[i] += 1
