"""Cross moments of two representations of the same tokens, and without each group of sequences."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.floating]
Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

_SINGULAR: Final = 1e-10
"""Share of the largest eigenvalue below which a direction counts as absent."""


class Representation:
    """The rows of one representation of some tokens, centred.

    Args:
        rows: Finite rows (token, dim).

    Attributes:
        n: Number of rows.
        rows: The centred rows X̃ (token, dim), in float32.
        squares: Squared norm of each (token).
    """

    def __init__(self, rows: Rows) -> None:
        centred = rows - rows.mean(axis=0, dtype=np.float64)
        self.n = len(rows)
        self.rows = centred.astype(np.float32)
        self.squares: Floats = np.einsum("ij,ij->i", centred, centred)

    @cached_property
    def whitening(self) -> Floats:
        """VΛ^(−1/2) of X̃ᵀX̃ = VΛVᵀ, without directions that do not occur (dim, rank)."""
        exact = self.rows.astype(np.float64)
        values, axes = np.linalg.eigh(exact.T @ exact)
        used = values > _SINGULAR * values[-1]
        whitening: Floats = axes[:, used] / np.sqrt(values[used])
        return whitening


class CrossMoments:
    """X̃ᵀỸ of two representations, in total and without each group of rows.

    Args:
        first: X.
        second: Y, of the same tokens.
        bounds: First row of every group, and the number of rows (group + 1).

    Attributes:
        total: X̃ᵀỸ (dim, dim).
        groups: The rows of each group.
        sizes: Their numbers.
    """

    def __init__(self, first: Representation, second: Representation, bounds: Indices) -> None:
        self._first = first
        self._second = second
        self.groups = [slice(start, stop) for start, stop in pairwise(bounds.tolist())]
        self.sizes = [rows.stop - rows.start for rows in self.groups]
        self._parts = [
            (first.rows[rows].T @ second.rows[rows]).astype(np.float64) for rows in self.groups
        ]
        self.total: Floats = np.sum(self._parts, axis=0)

    def left(self, index: int) -> Floats:
        """Return the cross moments (dim, dim) without a group, about the means of what is left."""
        rows = self.groups[index]
        first = self._first.rows[rows].sum(axis=0, dtype=np.float64)
        second = self._second.rows[rows].sum(axis=0, dtype=np.float64)
        rest = self._first.n - self.sizes[index]
        left: Floats = self.total - self._parts[index] - np.multiply.outer(first, second / rest)
        return left

    def lengths(self) -> Floats:
        """Return ‖X̃‖²‖Ỹ‖², of all rows and without each group (1 + group)."""
        return self._squares(self._first) * self._squares(self._second)

    @cached_property
    def alignments(self) -> Floats:
        """‖X̃ᵀỸ‖², of all rows and without each group (1 + group)."""
        matrices = [self.total, *(self.left(index) for index in range(len(self.groups)))]
        return np.array([float(np.vdot(matrix, matrix)) for matrix in matrices])

    @cached_property
    def debiased_alignments(self) -> Floats:
        """The same as an unbiased estimate, up to a factor that n alone decides (1 + group)."""
        a, b = self._first.squares, self._second.squares
        products = a @ b - np.array([0.0, *(a[rows] @ b[rows] for rows in self.groups)])
        n = self._first.n - np.array([0, *self.sizes])
        biases = products * n / (n - 2) - self.lengths() / ((n - 1) * (n - 2))
        unbiased: Floats = self.alignments - biases
        return unbiased

    def _squares(self, side: Representation) -> Floats:
        removed = np.array([0.0, *(side.squares[rows].sum() for rows in self.groups)])
        left: Floats = side.squares.sum() - removed
        return left
