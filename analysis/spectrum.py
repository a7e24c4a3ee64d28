"""Eigenvalues of scatter matrices, with what float64 cannot resolve set to zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_FLOAT64_ROUNDING: Final = 2.0**-52


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues of a second-moment matrix, and the axes they belong to.

    Attributes:
        values: Eigenvalues (component) in falling order, 0 beyond the rank.
        smallest: The smallest eigenvalue as it was computed, perhaps below 0.
        vectors: Unit eigenvectors (dim, component) in float32, None when not needed.
    """

    values: Floats
    smallest: float
    vectors: npt.NDArray[np.float32] | None

    @classmethod
    def of(cls, matrix: Floats, *, rank: int, vectors: bool) -> Spectrum:
        """Decompose a symmetric matrix (dim, dim) of at most the given rank.

        Args:
            matrix: Positive semi-definite up to rounding.
            rank: Largest rank it can have, from the number of rows it was summed over.
            vectors: Whether the axes are needed.
        """
        if not vectors:
            values = np.linalg.eigvalsh(matrix).astype(np.float64)
            return cls(_cut(values[::-1], rank), float(values[0]), None)
        values, axes = np.linalg.eigh(matrix)
        cut = _cut(values.astype(np.float64)[::-1], rank)
        return cls(cut, float(values[0]), axes[:, ::-1].astype(np.float32))

    def without(self, removed: Floats, *, rank: int) -> Spectrum:
        """Return the spectrum to first order after a part is taken away.

        Args:
            removed: The part (dim, dim) of the matrix, positive semi-definite.
            rank: Largest rank that what is left can have.
        """
        assert self.vectors is not None
        product = removed.astype(np.float32) @ self.vectors
        taken = np.einsum("ij,ij->j", self.vectors, product, dtype=np.float64)
        left = np.where(self.values > 0, self.values - taken, 0.0)
        values = np.sort(left)[::-1]
        return Spectrum(_cut(values, rank), float(values[-1]), None)


def _cut(values: Floats, rank: int) -> Floats:
    floor = len(values) * _FLOAT64_ROUNDING * values.max(initial=0.0)
    values = np.where(values > floor, values, 0.0)
    values[max(rank, 0) :] = 0.0
    return values
