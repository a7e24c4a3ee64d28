"""Rows by a few numbers each, whose distances never exceed those of the rows.

The inequality. For orthonormal directions W let z(x) = (Wᵀx, |x - WWᵀx|): how far the row x lies
along each of them, and how long the rest of it is. Then |z(x) - z(y)| ≤ |x - y|, since lengths of
rests differ by no more than the rests do, and |z(x)| = |x|. A row whose reduced distance exceeds R
is therefore further than R: products of k + 1 numbers tell what takes D otherwise.

The rounding. With u = 2⁻⁵³, γ = Du/(1 - Du) and ‖VᵀV - I‖ ≤ η, directions V are within η of
orthonormal ones, and k products in float64 within δ|x| of Wᵀx, δ = γ√k + η. The rest comes from
|x|² - |Vᵀx|² and errs by less than 4δ|x|² before the root, hence by 2√δ|x|. All of z errs by
ε|x| with ε = 3√δ + 2⁻²³, its rounding to float32 included, so that reduced distances are at most
d + εs, s = |x| + |y|, and their squares d² + 2εs² + ε²s², since d ≤ s. To this add what products
in float32 of k + 1 numbers take, as in `analysis.centred_rows`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from analysis.centred_rows import ROUNDING, UNDERFLOW, CentredRows
from analysis.exact_kernels import Reading
from analysis.neighbor_kernels import square_norms

Floats = npt.NDArray[np.float64]

Space: TypeAlias = "CentredRows | ReducedRows"
"""What is multiplied in search of candidates."""

_DOUBLE_ROUNDING: Final = 2.0**-53


@dataclass(frozen=True)
class ReducedRows:
    """Centred rows along some directions, and the length of the rest.

    Attributes:
        coordinates: Of each row, rounded to float32 (token, direction + 1).
        norms: Their squared norms (token).
        scale: Factor from distances of the rows as given to those of the centred ones.
        dim: Numbers of a row as given.
        lost: The ε of the module's text.
    """

    coordinates: npt.NDArray[np.float32]
    norms: Floats
    scale: float
    dim: int
    lost: float

    def __len__(self) -> int:
        return len(self.coordinates)

    @property
    def relative(self) -> float:
        """How much squared distances may rise, in units of the squared sum of two norms."""
        width = self.coordinates.shape[1]
        return float(1.01 * ((width / 2 + 16) * ROUNDING + 2 * self.lost))

    @property
    def least(self) -> float:
        """How much they may rise by underflow."""
        return self.dim * UNDERFLOW

    def block(self, tokens: slice | npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Return the coordinates of some tokens (token, direction + 1)."""
        return self.coordinates[tokens]

    def reading(self, tokens: slice | npt.NDArray[np.int64]) -> Reading:
        """Return how squared distances from some tokens are to be read by kernels."""
        return self.scale, np.sqrt(self.norms[tokens]), self.relative, self.least


def reduce_rows(centred: CentredRows, directions: Floats, block_rows: int) -> ReducedRows:
    """Lay centred rows along some directions.

    Args:
        centred: The rows.
        directions: Orthonormal directions (dim, direction), up to rounding.
        block_rows: Rows handled at a time.
    """
    n, (dim, count) = len(centred), directions.shape
    coordinates = np.empty((n, count + 1), np.float32)
    norms = np.empty(n)
    for start in range(0, n, block_rows):
        tokens = slice(start, min(n, start + block_rows))
        along = centred.block(tokens).astype(np.float64) @ directions
        coordinates[tokens, :count] = along
        rest = centred.norms[tokens] - np.einsum("ij,ij->i", along, along)
        coordinates[tokens, count] = np.sqrt(np.maximum(rest, 0.0))
        square_norms(coordinates[tokens], norms[tokens])
    return ReducedRows(coordinates, norms, centred.scale, dim, _lost(directions))


def _lost(directions: Floats) -> float:
    """Return the ε of the module's text."""
    dim, count = directions.shape
    gamma = dim * _DOUBLE_ROUNDING / (1 - dim * _DOUBLE_ROUNDING)
    skew = np.linalg.norm(directions.T @ directions - np.eye(count)) + 2 * count * gamma
    return float(3 * np.sqrt(gamma * np.sqrt(count) + skew) + 2 * ROUNDING)
