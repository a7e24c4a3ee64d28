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

_STRIP_ROWS: Final = 16
"""Rows whose powers are summed in the precision of the product before float64 takes over."""


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
def stage_rows(
    rows: Rows,
    selected: Indices,
    factors: Floats,
    shift: Floats,
    staged: Rows,
    powers: Floats,
) -> None:
    """Scale and shift the selected rows into a buffer, and sum their powers by dimension.

    Args:
        rows: Rows (token, dim).
        selected: Numbers of the rows to stage, as many as ``staged`` holds.
        factors: What each row (token) is multiplied by.
        shift: What is subtracted afterwards (dim).
        staged: Receives the rows (selected, dim), in its own precision.
        powers: Sums (4, dim) of the first four powers, added to.
    """
    strip = np.zeros(powers.shape, staged.dtype)
    for first in range(0, selected.shape[0], _STRIP_ROWS):
        for s in range(first, min(first + _STRIP_ROWS, selected.shape[0])):
            i = selected[s]
            factor = factors[i]
            for t in range(rows.shape[1]):
                staged[s, t] = rows[i, t] * factor - shift[t]
                value = staged[s, t]
                square = value * value
                strip[0, t] += value
                strip[1, t] += square
                strip[2, t] += square * value
                strip[3, t] += square * square
        for k in range(4):
            for t in range(rows.shape[1]):
                powers[k, t] += strip[k, t]
                strip[k, t] = 0


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


@compiled()
def unpack_triangle(packed: npt.NDArray[np.float32], unit: float, matrix: Floats) -> None:
    """Undo ``pack_triangle``, and fill the upper triangle by symmetry."""
    at = 0
    for i in range(matrix.shape[0]):
        for j in range(i + 1):
            matrix[i, j] = packed[at + j] * unit
            matrix[j, i] = matrix[i, j]
        at += i + 1
