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
Vectors = tuple[Floats, Floats, Floats, Floats]

_STRIP_ROWS: Final = 16
"""Rows whose powers are summed in the precision of the product before float64 takes over."""

_TILE: Final = 64

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


@compiled()
def measure_sizes(
    bits: Integers, mask: np.signedinteger, first: Indices, peaks: Integers, drawn: Integers
) -> None:
    """Write the size of the largest value of every row, and those of some others.

    Sizes are read as integers, which rise with them; NaN is the largest of all.

    Args:
        bits: Bits of the rows (token, dim).
        mask: All bits but the sign.
        first: First dimension drawn of each row (token); the others follow at equal distances.
        peaks: Receives the largest sizes (token).
        drawn: Receives the sizes drawn (token, value).
    """
    width, count = bits.shape[1], drawn.shape[1]
    for i in range(bits.shape[0]):
        largest = mask ^ mask
        for t in range(width):
            largest = max(largest, bits[i, t] & mask)
        peaks[i] = largest
        for k in range(count):
            drawn[i, k] = bits[i, (first[i] + k * width // count) % width] & mask


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
        segment: Segment of each row (token).
        sums: Sums (segment, part, dim), added to.
        squares: Sums of squares (part, dim), added to.
    """
    for i in range(rows.shape[0]):
        p = part[i]
        if p < 0:
            continue
        s = segment[i]
        factor = inverse[i]
        for t in range(rows.shape[1]):
            value = rows[i, t] * factor
            sums[s, p, t] += value
            squares[p, t] += value * value


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


@compiled()
def merge_central(a: int, b: int, own: Vectors, other: Vectors) -> None:
    """Merge the mean and the central sums of the second to fourth powers of b rows into those of a.

    Args:
        a: Number of the first rows.
        b: Number of the others.
        own: Their mean, squares, cubes and quartics (dim), changed.
        other: The same of the others.
    """
    n = a + b
    mean, squares, cubes, quartics = own
    for t in range(mean.shape[0]):
        gap = other[0][t] - mean[t]
        square = gap * gap
        quartics[t] += (
            other[3][t]
            + 4 * gap * (a * other[2][t] - b * cubes[t]) / n
            + 6 * square * (a * (a / n) * other[1][t] + b * (b / n) * squares[t]) / n
            + square * square * (a * (b / n) * (a / n * a - a / n * b + b / n * b) / n)
        )
        cubes[t] += (
            other[2][t]
            + 3 * gap * (a * other[1][t] - b * squares[t]) / n
            + square * gap * (a * (b / n) * ((a - b) / n))
        )
        squares[t] += other[1][t] + square * (a * (b / n))
        mean[t] += gap * (b / n)


@compiled()
def add_outer(matrix: Rows, vector: Floats, factor: float) -> None:
    """Add factor · vector vectorᵀ to a matrix (dim, dim) in place."""
    for i in range(matrix.shape[0]):
        weight = factor * vector[i]
        for j in range(matrix.shape[1]):
            matrix[i, j] += weight * vector[j]


@compiled()
def subtract_symmetric(matrix: Floats, left: Floats, right: Floats) -> None:
    """Subtract left rightᵀ + right leftᵀ from a matrix (dim, dim) in place."""
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            matrix[i, j] -= left[i] * right[j] + right[i] * left[j]


@compiled()
def add_triangle(product: Rows, matrix: Floats) -> None:
    """Add the lower triangle of a product (dim, dim) to that of a matrix."""
    for i in range(matrix.shape[0]):
        for j in range(i + 1):
            matrix[i, j] += product[i, j]


@compiled()
def finish_scatter(matrix: Floats, offset: Floats, n: float, factor: float) -> None:
    """Make the scatter about the mean, times a factor, of the lower triangle of Σxxᵀ.

    Args:
        matrix: Σxxᵀ (dim, dim), of which the lower triangle is read; receives all of it.
        offset: The mean of x (dim).
        n: Number of x.
        factor: What the scatter is multiplied by.
    """
    for i in range(matrix.shape[0]):
        weight = n * offset[i]
        for j in range(i + 1):
            matrix[i, j] = (matrix[i, j] - weight * offset[j]) * factor
            matrix[j, i] = matrix[i, j]


@compiled()
def pack_triangle(matrix: Floats, unit: float, packed: npt.NDArray[np.float32]) -> None:
    """Write the lower triangle of a matrix (dim, dim), divided by ``unit``, row after row."""
    at = 0
    for i in range(matrix.shape[0]):
        for j in range(i + 1):
            packed[at + j] = matrix[i, j] / unit
        at += i + 1


@compiled("contract")
def unpack_triangle(
    packed: npt.NDArray[np.float32], unit: float, vector: Floats, weight: float, matrix: Floats
) -> None:
    """Add what ``pack_triangle`` wrote, and weight · vector vectorᵀ, to a lower triangle."""
    at = 0
    for i in range(matrix.shape[0]):
        factor = weight * vector[i]
        for j in range(i + 1):
            matrix[i, j] += packed[at + j] * unit + factor * vector[j]
        at += i + 1


@compiled()
def mirror(matrix: Floats) -> None:
    """Fill the upper triangle of a matrix (dim, dim) by symmetry."""
    for start in range(0, matrix.shape[0], _TILE):
        stop = min(start + _TILE, matrix.shape[0])
        for i in range(start, matrix.shape[0]):
            for j in range(start, min(stop, i)):
                matrix[j, i] = matrix[i, j]
