"""Compiled loops over matrices and sums of powers: merging, finishing, packing them.

Each releases the interpreter lock.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.neighbor_kernels import compiled

Rows = npt.NDArray[np.floating]
Floats = npt.NDArray[np.float64]
Vectors = tuple[Floats, Floats, Floats, Floats]

_TILE: Final = 64


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
