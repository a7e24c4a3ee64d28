"""Eigenvalues of scatter matrices, with what float64 cannot resolve set to zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.lapack import tridiagonal_eigenvalues, tridiagonalise
from analysis.matrix_kernels import subtract_symmetric

Floats = npt.NDArray[np.float64]

_FLOAT64_ROUNDING: Final = 2.0**-52


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues of a second-moment matrix.

    Attributes:
        values: Eigenvalues (component) in falling order, 0 beyond the rank.
        smallest: The smallest eigenvalue as it was computed, perhaps below 0.
    """

    values: Floats
    smallest: float

    @classmethod
    def computed(cls, values: Floats, *, rank: int) -> Spectrum:
        """Clear eigenvalues (component), in falling order, of what is rounding.

        Args:
            values: The eigenvalues as they were computed.
            rank: Largest rank that their matrix can have.
        """
        floor = len(values) * _FLOAT64_ROUNDING * values.max(initial=0.0)
        cut = np.where(values > floor, values, 0.0)
        cut[max(rank, 0) :] = 0.0
        return cls(cut, float(values[-1]))


class Tridiagonal:
    """A symmetric matrix, reduced so that multiples of one vvᵀ can be added to it afterwards.

    The first axis of the reduction is v. What is added to M along it changes one element, so that
    the spectra of rows about their mean and about the origin cost one reduction together.

    Args:
        matrix: M (dim, dim), left unchanged.
        vector: v (dim).
    """

    def __init__(self, matrix: Floats, vector: Floats) -> None:
        self._square = float(vector @ vector)
        reduced = np.array(matrix, np.float64, order="C")
        if self._square > 0:
            _turn_to_first(reduced, vector / np.sqrt(self._square))
        self._diagonal, self._beside = tridiagonalise(reduced)

    def spectrum(self, added: float, *, rank: int) -> Spectrum:
        """Return the eigenvalues of M + added · vvᵀ.

        Args:
            added: The multiple.
            rank: Largest rank that the matrix can have.
        """
        diagonal = self._diagonal.copy()
        diagonal[:1] += added * self._square
        return Spectrum.computed(tridiagonal_eigenvalues(diagonal, self._beside)[::-1], rank=rank)


def _turn_to_first(matrix: Floats, vector: Floats) -> None:
    """Reflect a symmetric matrix so that a unit vector (dim) becomes ± the first axis."""
    normal = vector.copy()
    normal[0] += np.copysign(1.0, normal[0])
    weight = 2 / float(normal @ normal)
    image = weight * (matrix @ normal)
    image -= (weight / 2 * float(normal @ image)) * normal
    subtract_symmetric(matrix, normal, image)
