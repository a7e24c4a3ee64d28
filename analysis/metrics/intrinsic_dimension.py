"""Intrinsic dimension from the distances to nearest neighbours.

Around a row of a sample of locally uniform density in d dimensions, the volumes between
successive neighbours are exponential variables of one rate, so that ratios of distances depend on
d alone. Every estimator here reads some of these ratios; each is taken over distinct rows, and
is NaN for fewer rows than it can say anything from.

Activations of a model that computed in bfloat16 lie on a grid of 8 significant bits. Rows differ in
so many dimensions that few distances tie, but on scales near the grid's the estimates are its own.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from scipy.optimize import brentq

from analysis.metrics.metric import FloatArray
from analysis.neighbors import Neighbors

MIN_RATIOS: Final = 10
"""Ratios that any estimate needs: it would be off by a third or more from fewer."""

DECIMATIONS: Final = (1, 2, 4, 8)
"""By how much the rows are thinned for the estimates that tell how they depend on n."""

GRIDE_SCALES: Final = (1, 2, 4, 8, 16, 32, 64)
"""Orders k of the neighbours whose distances r₂ₖ and rₖ `gride` compares."""

MLE_NEIGHBORS: Final = 20
MOM_NEIGHBORS: Final = 100
MADA_NEIGHBORS: Final = 20


def two_nn(neighbors: Neighbors) -> float:
    """Estimate the dimension by TwoNN, from the lowest 90 % of the ratios m = r₂/r₁.

    The slope through the origin of -log(1 - F(m)) on log m, with F the empirical distribution
    i/n of the sorted ratios: with x, y these two, Σxy / Σx².

    Args:
        neighbors: At least two neighbours of each row.

    Returns:
        The dimension, above 0.

    Reference:
        Facco, d'Errico, Rodriguez & Laio, Scientific Reports 7:12140 (2017), equation 3 and
        the procedure below it.
    """
    return _two_nn_slope(neighbors, lowest=0.9)


def two_nn_lowest_fifth(neighbors: Neighbors) -> float:
    """Estimate the dimension by TwoNN, from the lowest 20 % of the ratios m = r₂/r₁.

    The fit of `two_nn` as the code of LLM-Microscope restricts it, to compare with its papers.

    Args:
        neighbors: At least two neighbours of each row.

    Returns:
        The dimension, above 0.

    Reference:
        Razzhigaev et al., The Shape of Learning (2024), published code.
    """
    return _two_nn_slope(neighbors, lowest=0.2)


def two_nn_mle(neighbors: Neighbors) -> float:
    """Estimate the dimension by TwoNN's maximum likelihood, (n - 1) / Σ log(r₂/r₁).

    The ratios are Pareto variables of exponent d; n - 1 in place of n makes it unbiased.

    Args:
        neighbors: At least two neighbours of each row.

    Returns:
        The dimension, above 0.

    Reference:
        Facco et al. (2017), equation 2; Denti, Doimo, Laio & Mira, Scientific Reports 12:20005
        (2022), section 2.
    """
    logarithms = _log_ratios(neighbors, 1, 2)
    total = float(logarithms.sum())
    if len(logarithms) < MIN_RATIOS or total == 0.0:
        return math.nan
    return (len(logarithms) - 1) / total


def gride(neighbors: Neighbors) -> FloatArray:
    """Estimate the dimension on growing scales by GRIDE.

    With m = r₂ₖ/rₖ of n rows, the d that maximises the likelihood
    Π d (m^d - 1)^(k-1) / m^((2k-1)d+1), up to a constant: the root of
    (n-1)/d + (k-1) Σ log m / (1 - m^-d) - (2k-1) Σ log m, which falls in d. As in `two_nn_mle`,
    its value on the first scale, n - 1 in place of n takes out the bias.

    Args:
        neighbors: Neighbours of each row, 128 for all scales.

    Returns:
        The dimension (scale) for each k of `GRIDE_SCALES`, above 0; NaN where there are fewer
        than 2k neighbours.

    Reference:
        Denti, Doimo, Laio & Mira, The generalized ratios intrinsic dimension estimator,
        Scientific Reports 12:20005 (2022), equation 8.
    """
    return np.array([_gride(neighbors, k) for k in GRIDE_SCALES])


def mle(neighbors: Neighbors) -> float:
    """Estimate the dimension by maximum likelihood over 20 neighbours.

    The mean over rows of the inverse local dimension, 1/(k-1) Σ_{j<k} log(T_k/T_j), inverted.

    Args:
        neighbors: At least 20 neighbours of each row.

    Returns:
        The dimension, above 0.

    Reference:
        Levina & Bickel, NIPS (2004), equation 8; aggregated after MacKay & Ghahramani, Comments
        on "Maximum likelihood estimation of intrinsic dimension" (2005).
    """
    inverses = _inverse_local_dimensions(neighbors)
    mean = float(inverses.mean()) if len(inverses) else 0.0
    return 1 / mean if len(inverses) >= MIN_RATIOS and mean > 0 else math.nan


def mle_mean(neighbors: Neighbors) -> float:
    """Estimate the dimension by maximum likelihood over 20 neighbours, as first aggregated.

    The mean over rows of the local dimensions [1/(k-1) Σ_{j<k} log(T_k/T_j)]⁻¹; a row whose
    neighbours are all at one distance has none.

    Args:
        neighbors: At least 20 neighbours of each row.

    Returns:
        The dimension, above 0.

    Reference:
        Levina & Bickel, NIPS (2004), equations 8 and 9.
    """
    inverses = _inverse_local_dimensions(neighbors)
    return _mean_local(np.ones(len(inverses)), inverses)


def mom(neighbors: Neighbors) -> float:
    """Estimate the dimension by the method of moments over 100 neighbours.

    The mean over rows of m₁/(w - m₁), with m₁ the mean distance of the neighbours and w the
    largest; a row whose neighbours are all at one distance has none.

    Args:
        neighbors: At least 100 neighbours of each row.

    Returns:
        The dimension, above 0.

    Reference:
        Amsaleg et al., Extreme-value-theoretic estimation of local intrinsic dimensionality,
        Data Mining and Knowledge Discovery 32 (2018), section 4.2.
    """
    if neighbors.distances.shape[1] < MOM_NEIGHBORS:
        return math.nan
    distances = neighbors.distances[:, :MOM_NEIGHBORS]
    means = distances.mean(axis=1)
    return _mean_local(means, distances[:, -1] - means)


def mada(neighbors: Neighbors) -> float:
    """Estimate the dimension by manifold-adaptive dimension estimation over 20 neighbours.

    The mean over rows of log 2 / log(R_k/R_{k/2}); a row where the two are equal has none.

    Args:
        neighbors: At least 20 neighbours of each row.

    Returns:
        The dimension, above 0.

    Reference:
        Farahmand, Szepesvári & Audibert, Manifold-adaptive dimension estimation, ICML (2007),
        equation 5.
    """
    logarithms = _log_ratios(neighbors, MADA_NEIGHBORS // 2, MADA_NEIGHBORS)
    return _mean_local(np.full(len(logarithms), math.log(2)), logarithms)


def _two_nn_slope(neighbors: Neighbors, *, lowest: float) -> float:
    logarithms = np.sort(_log_ratios(neighbors, 1, 2))
    n = len(logarithms)
    used = int(n * lowest)
    x = logarithms[:used]
    y = -np.log1p(-np.arange(1, used + 1) / n)
    squares = float(x @ x)
    if used < MIN_RATIOS or squares == 0.0:
        return math.nan
    return float(x @ y) / squares


def _gride(neighbors: Neighbors, k: int) -> float:
    logarithms = _log_ratios(neighbors, k, 2 * k)
    n, total = len(logarithms), float(logarithms.sum())
    if n < MIN_RATIOS or total == 0.0:
        return math.nan
    apart = logarithms[logarithms > 0.0]

    def slope(dimension: float) -> float:
        # log m / (1 - m^-d) tends to 1/d as m tends to 1.
        terms = float((apart / -np.expm1(-dimension * apart)).sum())
        terms += (n - len(apart)) / dimension
        return (n - 1) / dimension + (k - 1) * terms - (2 * k - 1) * total

    # Each term lies between 1/d and 1/d + log m, which bounds the root on either side.
    low, high = (n * k - 1) / ((2 * k - 1) * total), (n * k - 1) / (k * total)
    return float(brentq(slope, low * (1 - 1e-9), high * (1 + 1e-9), xtol=1e-14 * high))


def _inverse_local_dimensions(neighbors: Neighbors) -> FloatArray:
    if neighbors.distances.shape[1] < MLE_NEIGHBORS:
        return np.empty(0)
    logarithms = np.log(neighbors.distances[:, :MLE_NEIGHBORS])
    inverses: FloatArray = (logarithms[:, -1:] - logarithms[:, :-1]).mean(axis=1)
    return inverses


def _mean_local(numerators: FloatArray, denominators: FloatArray) -> float:
    """Return the mean of the quotients whose denominator is above 0, NaN from too few."""
    defined = denominators > 0.0
    if np.count_nonzero(defined) < MIN_RATIOS:
        return math.nan
    return float((numerators[defined] / denominators[defined]).mean())


def _log_ratios(neighbors: Neighbors, nearer: int, further: int) -> FloatArray:
    """Return the log of the ratio of two distances (token), none without so many neighbours."""
    distances = neighbors.distances
    if distances.shape[1] < further:
        return np.empty(0)
    logarithms: FloatArray = np.log(distances[:, further - 1] / distances[:, nearer - 1])
    return logarithms
