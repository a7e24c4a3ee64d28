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
    """Eigenvalues of a second-moment matrix.

    Attributes:
        values: Eigenvalues (component) in falling order, 0 beyond the rank.
        smallest: The smallest eigenvalue as it was computed, perhaps below 0.
    """

    values: Floats
    smallest: float

    @classmethod
    def of(cls, matrix: Floats, *, rank: int) -> Spectrum:
        """Decompose a symmetric matrix (dim, dim) of at most the given rank.

        Args:
            matrix: Positive semi-definite up to rounding.
            rank: Largest rank it can have, from the number of rows it was summed over.
        """
        return cls.computed(np.linalg.eigvalsh(matrix)[::-1].astype(np.float64), rank=rank)

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
