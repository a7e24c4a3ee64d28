"""Groups of whole sequences, from which standard errors are resampled."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.matrix_kernels import add_outer, add_triangle, pack_triangle, unpack_triangle
from analysis.populations import TokenTable

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

GROUPS: Final = 10
"""Groups left out in turn; the relative error of a standard error is about 1/√(2·9) = 24 %."""

LEAST_GROUPS: Final = 4
SCATTER_BYTES: Final = 512 << 20
"""Memory for the scatters of groups: all ten up to a width of about 2,900, five at 4,096."""


def group_count(dim: int, parts: int, scatter_bytes: int = SCATTER_BYTES) -> int:
    """Return how many groups there may be, where a scatter of each is kept.

    Args:
        dim: Width of the rows.
        parts: Scatters kept for each group.
        scatter_bytes: Memory that all of them may take.
    """
    if parts == 0:
        return GROUPS
    bytes_each = parts * 2 * dim * (dim + 1)
    return min(GROUPS, max(LEAST_GROUPS, scatter_bytes // bytes_each))


def group_bounds(table: TokenTable, groups: int = GROUPS) -> Indices:
    """Cut the rows into contiguous groups of whole sequences, as equal in rows as can be.

    Args:
        table: The rows, in the order of their sequences.
        groups: Number of groups; fewer come out where there are fewer sequences.

    Returns:
        First row of every group, and the number of rows (group + 1).
    """
    if table.sequence is None:
        starts = np.arange(table.n)
    else:
        changes = np.flatnonzero(np.diff(table.sequence)) + 1
        starts = np.concatenate([np.zeros(1, np.int64), changes])
    wanted = np.arange(1, groups) * (table.n / groups)
    after = np.searchsorted(starts, wanted)
    after = np.minimum(after, len(starts) - 1)
    before = np.maximum(after - 1, 0)
    nearer = np.where(wanted - starts[before] < starts[after] - wanted, before, after)
    return np.unique(np.concatenate([[0], starts[nearer], [table.n]])).astype(np.int64)


class PackedRows:
    """The scatter of a few rows, kept as these rows: of fewer than an eighth of the dimensions.

    Args:
        rows: The rows (token, dim).
    """

    def __init__(self, rows: Floats) -> None:
        centred = rows - rows.mean(axis=0)
        self._unit = float(np.abs(centred).max(initial=0.0)) or 1.0
        self._values = (centred / self._unit).astype(np.float32)

    @staticmethod
    def suits(n: int, dim: int) -> bool:
        """Return whether n rows of width ``dim`` take less memory than their scatter, packed."""
        return 0 < n <= dim // 8

    def add_to(self, matrix: Floats, vector: Floats, weight: float) -> None:
        """Add the scatter and weight · vector vectorᵀ to the lower triangle of one (dim, dim).

        Rows about their mean are rounded to float32 relative to the largest element.
        """
        values = self._values.astype(np.float64) * self._unit
        product = values.T @ values
        add_outer(product, vector, weight)
        add_triangle(product, matrix)


class PackedMatrix:
    """A positive semi-definite matrix (dim, dim) in a quarter of the memory: half, in float32."""

    def __init__(self, matrix: Floats) -> None:
        self._dim = len(matrix)
        self._unit = float(np.abs(matrix.diagonal()).max(initial=0.0)) or 1.0
        self._values = np.empty(self._dim * (self._dim + 1) // 2, np.float32)
        pack_triangle(matrix, self._unit, self._values)

    def add_to(self, matrix: Floats, vector: Floats, weight: float) -> None:
        """Add the matrix and weight · vector vectorᵀ to the lower triangle of one (dim, dim).

        Its elements are rounded to float32 relative to the largest.
        """
        unpack_triangle(self._values, self._unit, vector, weight, matrix)
