"""Massive activations: rows and dimensions far from the rest."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from analysis.metrics.metric import Metric
from analysis.statistics import Statistics

_SUN = "Sun et al. 2024, arXiv:2402.17762"
_DETTMERS = "Dettmers et al. 2022, arXiv:2208.07339; Kovaleva et al. 2021, arXiv:2105.06990"

OUTLIER_RATIO: Final = 6.0
"""Multiple of the median root mean square beyond which a dimension counts as an outlier."""


def median_norm(statistics: Statistics) -> float:
    """Return the median norm of the rows; at least 0."""
    return statistics.median_norm


def max_norm(statistics: Statistics) -> float:
    """Return the largest norm of the rows; at least 0."""
    return float(statistics.norms.max()) if statistics.n else math.nan


def max_norm_ratio(statistics: Statistics) -> float:
    """Return the largest norm over the median norm; at least 1. NaN for a median of 0.

    Source: Sun et al. 2024, who look at single values of the massive rows.
    """
    median = statistics.median_norm
    return max_norm(statistics) / median if median > 0 else math.nan


def max_kurtosis(statistics: Statistics) -> float:
    """Return the largest kurtosis of a dimension, Σ(h_k − μ_k)⁴/n over the variance squared.

    At least 1; 3 for a Gaussian. NaN where no dimension varies.
    """
    values = statistics.kurtosis
    if statistics.constant or np.isnan(values).all():
        return math.nan
    return float(np.nanmax(values))


def outlier_dimensions(statistics: Statistics) -> float:
    """Return how many dimensions have a root mean square above 6 times the median of them all.

    Source: after the outlier features of Dettmers et al. 2022 and Kovaleva et al. 2021; the
    threshold is relative here, so that it does not depend on the scale of the model.
    """
    root = np.sqrt(statistics.variance + statistics.mean**2)
    if not statistics.n:
        return math.nan
    return float((root > OUTLIER_RATIO * np.median(root)).sum())


MASSIVE_METRICS = (
    Metric(
        "median_norm",
        median_norm,
        needs="moments",
        version=1,
        long_name="median norm of the rows",
        units="activation",
        range="at least 0",
        reference=_SUN,
        undefined="no rows",
    ),
    Metric(
        "max_norm",
        max_norm,
        needs="moments",
        version=1,
        long_name="largest norm of the rows",
        units="activation",
        range="at least 0",
        reference=_SUN,
        undefined="no rows",
    ),
    Metric(
        "max_norm_ratio",
        max_norm_ratio,
        needs="moments",
        version=1,
        long_name="largest norm over the median norm",
        units="1",
        range="at least 1",
        reference=_SUN,
        undefined="rows of which half are zeros",
    ),
    Metric(
        "max_kurtosis",
        max_kurtosis,
        needs="moments",
        version=1,
        long_name="largest kurtosis of a dimension",
        units="1",
        range="at least 1",
        reference=_SUN,
        undefined="constant rows",
    ),
    Metric(
        "outlier_dimensions",
        outlier_dimensions,
        needs="moments",
        version=1,
        long_name="number of outlier dimensions",
        units="1",
        range="0 to d",
        reference=_DETTMERS,
        undefined="no rows",
    ),
)
