"""What metrics are functions of: the finished statistics of one population of one layer."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.errors import AnalysisError
from analysis.magnitudes import median_of
from analysis.moments import Directions, Moments
from analysis.shapes import Shapes
from analysis.spectrum import Spectrum, Tridiagonal

Floats = npt.NDArray[np.float64]

CONSTANT: Final = float(np.finfo(np.float32).eps)
"""Spread relative to the norm of the rows below which nothing but rounding is left of it."""

_CLEAR: Final = 16.0
"""Multiple of the noise of independent errors above which an eigenvalue is trusted."""


class Statistics:
    """Statistics of n rows h of width d; u = h/‖h‖.

    Args:
        moments: Their moments.
        spectrum: Eigenvalues of the scatter, where they are known without it.
        uncentred: Eigenvalues of Σhhᵀ, where they are known without the scatter.
        first: The share of the first component, where nothing else of the spectrum is known.
    """

    def __init__(
        self,
        moments: Moments,
        *,
        spectrum: Spectrum | None = None,
        uncentred: Spectrum | None = None,
        first: float | None = None,
    ) -> None:
        self._moments = moments
        self._known = spectrum
        self._known_uncentred = uncentred
        self._first = first

    @property
    def n(self) -> int:
        """Number of rows."""
        return self._moments.central.n

    @property
    def dim(self) -> int:
        """Width of the rows."""
        return len(self._moments.central.mean)

    @property
    def directions(self) -> Directions:
        """Sums of unit vectors."""
        return self._moments.directions

    @property
    def shapes(self) -> Shapes:
        """Sums over the shapes of sequences."""
        return self._moments.shapes

    @property
    def mean(self) -> Floats:
        """Mean row (dim); NaN without rows."""
        return self._moments.central.mean if self.n else np.full(self.dim, np.nan)

    @cached_property
    def norms(self) -> Floats:
        """Norms of the rows (token), in no particular order."""
        return np.concatenate([np.empty(0), *self._moments.norms])

    @cached_property
    def median_norm(self) -> float:
        """Median norm of the rows; NaN without rows."""
        return float(np.median(self.norms)) if self.n else math.nan

    @property
    def max_activation(self) -> float:
        """Largest |h| of a single value; NaN without rows."""
        return self._moments.magnitudes.largest if self.n else math.nan

    @cached_property
    def median_activation(self) -> float:
        """Median |h| of single values, of a sample of many; NaN without rows."""
        return median_of(self._moments.magnitudes.drawn)

    @cached_property
    def variance(self) -> Floats:
        """Variance of every dimension (dim), Σ(h − μ)²/n; NaN without rows."""
        return self._over_n(self._moments.central.squares)

    @property
    def skewness(self) -> Floats:
        """Skewness of every dimension (dim); NaN where the variance is 0."""
        return _ratio(self._over_n(self._moments.central.cubes), self.variance**1.5)

    @property
    def kurtosis(self) -> Floats:
        """Kurtosis of every dimension (dim), 3 for a Gaussian; NaN where the variance is 0."""
        return _ratio(self._over_n(self._moments.central.quartics), self.variance**2)

    @cached_property
    def constant(self) -> bool:
        """Whether the rows are the same up to the rounding of float32."""
        square = float(self.norms @ self.norms) / self.n if self.n else 0.0
        return bool(self.variance.sum() <= CONSTANT**2 * square) if self.n else True

    @property
    def blurred(self) -> bool:
        """Whether some eigenvalue is no larger than what rounding of the products makes up."""
        noise = self._moments.central.noise
        return noise > 0 and self.scatter_spectrum.smallest < _CLEAR * noise

    @property
    def spectrum(self) -> Floats:
        """Eigenvalues λ (component) of the covariance Σ(h − μ)(h − μ)ᵀ/n, falling.

        At most n − 1 are not 0; all are NaN with fewer than two rows or constant ones.
        """
        return self._normalised(self.scatter_spectrum.values)

    @property
    def first_share(self) -> float:
        """Share λ₁/Σλ of the first component in the variance.

        NaN with fewer than two rows or constant ones.
        """
        if self.n < 2 or self.constant:
            return math.nan
        if self._first is None:
            return float(self.spectrum[0] / self.spectrum.sum())
        return self._first

    @property
    def uncentred_spectrum(self) -> Floats:
        """Eigenvalues (component) of Σhhᵀ/n, falling; NaN without rows or with zeros only."""
        values = self.uncentred_scatter_spectrum.values
        if self.n == 0 or not values.any():
            return np.full(self.dim, np.nan)
        return values / self.n

    @cached_property
    def scatter_spectrum(self) -> Spectrum:
        """Eigenvalues of the scatter itself."""
        if self._known is not None:
            return self._known
        return self._tridiagonal.spectrum(0.0, rank=self.n - 1)

    @cached_property
    def uncentred_scatter_spectrum(self) -> Spectrum:
        """Eigenvalues of Σhhᵀ itself."""
        if self._known_uncentred is not None:
            return self._known_uncentred
        return self._tridiagonal.spectrum(float(self.n), rank=self.n)

    @property
    def scatter(self) -> Floats:
        """Σ(h − μ)(h − μ)ᵀ (dim, dim), not to be changed."""
        scatter = self._moments.central.scatter
        if scatter is None:
            raise AnalysisError(
                "the spectrum was not collected for this metric; declare needs='spectrum'"
            )
        return scatter

    @cached_property
    def _tridiagonal(self) -> Tridiagonal:
        return Tridiagonal(self.scatter, self._moments.central.mean)

    def _normalised(self, values: Floats) -> Floats:
        if self.n < 2 or self.constant:
            return np.full(self.dim, np.nan)
        return values / self.n

    def _over_n(self, sums: Floats) -> Floats:
        return sums / self.n if self.n else np.full(self.dim, np.nan)


def _ratio(top: Floats, bottom: Floats) -> Floats:
    return np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom > 0)
