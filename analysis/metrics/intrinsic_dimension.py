"""Intrinsic dimension from the distances to nearest neighbours.

Around a row of a sample of locally uniform density in d dimensions, the volumes between
successive neighbours are exponential variables of one rate, so that ratios of distances depend on
d alone. Every estimator here reads some of these ratios; each is taken over distinct rows, and
is NaN for fewer rows than it can say anything from.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from analysis.metrics.metric import FloatArray
from analysis.neighbors import Neighbors

MIN_RATIOS: Final = 10
"""Ratios that any estimate needs: it would be off by a third or more from fewer."""


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


def _log_ratios(neighbors: Neighbors, nearer: int, further: int) -> FloatArray:
    distances = neighbors.distances
    logarithms: FloatArray = np.log(distances[:, further - 1] / distances[:, nearer - 1])
    return logarithms
