"""Compiled inner loops of the pass over the rows of a layer.

Each reads a block of rows once and releases the interpreter lock. Long sums
run in float64; staged rows are rounded to the precision of the matrix product they go into.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.neighbor_kernels import compiled

Rows = npt.NDArray[np.floating]
Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Integers = npt.NDArray[np.signedinteger]
Words = npt.NDArray[np.unsignedinteger]

_STRIP_ROWS: Final = 16
"""Rows whose powers are summed in the precision of the product before float64 takes over."""

_ROWS_AT_ONCE: Final = 4
"""Rows summed before what is in memory is added to."""


@compiled("reassoc", "contract")
def measure_norms(rows: Rows, norms: Floats) -> None:
    """Write the Euclidean norm of every row.

    Args:
        rows: Rows (token, dim).
        norms: Receives the norms (token); NaN or infinite where the row is not finite.
    """
    for i in range(rows.shape[0]):
        total = 0.0
        for t in range(rows.shape[1]):
            value = np.float64(rows[i, t])
            total += value * value
        norms[i] = np.sqrt(total)


@compiled("reassoc", "contract")
def measure_rows(
    rows: Rows,
    words: Words,
    sign: np.unsignedinteger,
    first: Indices,
    norms: Floats,
    peaks: Words,
    drawn: Words,
) -> None:
    """Write the norm of every row, the size of its largest value, and those of some others.

    Sizes are read as unsigned integers, which rise with them; NaN is the largest of all. A row is
    still in the first cache when its sizes are looked at.

    Args:
        rows: Rows (token, dim).
        words: Their bits (token, dim).
        sign: All bits but the sign.
        first: First dimension drawn of each row (token); the others follow at equal distances.
        norms: Receives the norms (token); NaN or infinite where the row is not finite.
        peaks: Receives the largest sizes (token).
        drawn: Receives the sizes drawn (token, value).
    """
    width, count = rows.shape[1], drawn.shape[1]
    for i in range(rows.shape[0]):
        total = 0.0
        for t in range(width):
            value = np.float64(rows[i, t])
            total += value * value
        norms[i] = np.sqrt(total)
        largest = peaks.dtype.type(0)
        for t in range(width):
            largest = max(largest, peaks.dtype.type(words[i, t] & sign))
        peaks[i] = largest
        for k in range(count):
            drawn[i, k] = words[i, (first[i] + k * width // count) % width] & sign


@compiled()
def of_rank(values: Integers, bounds: Indices, rank: int) -> int:
    """Return the integer that ``rank`` others stand before, by halving the range of all.

    Args:
        values: Integers above −1 (value), rising from each bound to the next.
        bounds: First place of every piece, and the number of values (piece + 1).
        rank: A number below that.
    """
    low, high = np.int64(0), np.int64(0)
    for p in range(bounds.shape[0] - 1):
        if bounds[p + 1] > bounds[p]:
            high = max(high, np.int64(values[bounds[p + 1] - 1]))
    while low < high:
        middle = np.int64(low + (high - low) // 2)
        below = np.int64(0)
        for p in range(bounds.shape[0] - 1):
            first, last = bounds[p], bounds[p + 1]
            while first < last:
                at = (first + last) // 2
                if values[at] <= middle:
                    first = at + 1
                else:
                    last = at
            below += first - bounds[p]
        if below > rank:
            high = middle
        else:
            low = middle + np.int64(1)
    return int(low)


@compiled("reassoc", "contract")
def stage_rows(
    rows: Rows,
    selected: Indices,
    factors: Rows,
    shift: Rows,
    staged: Rows,
    squares: Rows,
    powers: Floats,
) -> None:
    """Scale and shift the selected rows into a buffer, and sum their powers by dimension.

    Args:
        rows: Rows (token, dim).
        selected: Numbers of the rows to stage, as many as ``staged`` holds.
        factors: What each row (token) is multiplied by.
        shift: What is subtracted afterwards (dim).
        staged: Receives the rows (selected, dim), in its own precision.
        squares: Receives their squared norms (selected), likewise.
        powers: Sums (4, dim) of the first four powers, added to.
    """
    strip = np.zeros(powers.shape, staged.dtype)
    for first in range(0, selected.shape[0], _STRIP_ROWS):
        last = min(first + _STRIP_ROWS, selected.shape[0])
        for s in range(first, last):
            row = rows[selected[s]]
            factor = factors[selected[s]]
            total = staged.dtype.type(0)
            for t in range(rows.shape[1]):
                value = staged.dtype.type(row[t] * factor - shift[t])
                staged[s, t] = value
                total += value * value
            squares[s] = total
        add_powers(staged[first:last], strip)
        for k in range(4):
            for t in range(rows.shape[1]):
                powers[k, t] += strip[k, t]
                strip[k, t] = 0


@compiled("reassoc", "contract")
def add_powers(rows: Rows, powers: Rows) -> None:
    """Add the first four powers of rows (token, dim) to sums (4, dim)."""
    whole = rows.shape[0] - rows.shape[0] % _ROWS_AT_ONCE
    for s in range(0, whole, _ROWS_AT_ONCE):
        for t in range(rows.shape[1]):
            a, b, c, d = rows[s, t], rows[s + 1, t], rows[s + 2, t], rows[s + 3, t]
            a2, b2, c2, d2 = a * a, b * b, c * c, d * d
            powers[0, t] += (a + b) + (c + d)
            powers[1, t] += (a2 + b2) + (c2 + d2)
            powers[2, t] += (a2 * a + b2 * b) + (c2 * c + d2 * d)
            powers[3, t] += (a2 * a2 + b2 * b2) + (c2 * c2 + d2 * d2)
    for s in range(whole, rows.shape[0]):
        for t in range(rows.shape[1]):
            value = rows[s, t]
            square = value * value
            powers[0, t] += value
            powers[1, t] += square
            powers[2, t] += square * value
            powers[3, t] += square * square


@compiled("reassoc", "contract")
def sum_directions(
    rows: Rows,
    inverse: Floats,
    part: npt.NDArray[np.int8],
    segment: Indices,
    sums: Floats,
    squares: Floats,
) -> None:
    """Sum the unit vectors along the rows by segment and part, and their squares by part.

    Args:
        rows: Rows (token, dim).
        inverse: One over the norm of each row (token).
        part: Part of each row (token), negative for rows to leave out.
        segment: Segment of each row (token), never falling.
        sums: Sums (segment, part, dim), added to.
        squares: Sums of squares (part, dim), added to.
    """
    i = 0
    while i < rows.shape[0]:
        p, s, a = part[i], segment[i], inverse[i]
        last = i + _ROWS_AT_ONCE - 1
        if p < 0:
            i += 1
        elif (
            last < rows.shape[0]
            and segment[last] == s
            and part[i + 1] == p
            and part[i + 2] == p
            and part[last] == p
        ):
            b, c, d = inverse[i + 1], inverse[i + 2], inverse[last]
            for t in range(rows.shape[1]):
                x, y = rows[i, t] * a, rows[i + 1, t] * b
                z, w = rows[i + 2, t] * c, rows[last, t] * d
                sums[s, p, t] += (x + y) + (z + w)
                squares[p, t] += (x * x + y * y) + (z * z + w * w)
            i += _ROWS_AT_ONCE
        else:
            for t in range(rows.shape[1]):
                value = rows[i, t] * a
                sums[s, p, t] += value
                squares[p, t] += value * value
            i += 1


@compiled("reassoc", "contract")
def square_sums(sums: Floats, first: int, last: int, squares: Floats) -> None:
    """Write the squared norms of sums over some parts.

    Args:
        sums: Sums (segment, part, dim).
        first: The first part.
        last: The last part.
        squares: Receives the squared norms (segment).
    """
    for s in range(sums.shape[0]):
        total = 0.0
        for t in range(sums.shape[2]):
            value = sums[s, first, t]
            for p in range(first + 1, last + 1):
                value += sums[s, p, t]
            total += value * value
        squares[s] = total
