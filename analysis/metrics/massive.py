"""Massive activations: rows and dimensions far from the rest."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from analysis.metrics.metric import FloatArray, Metric
from analysis.statistics import Statistics
from store.schema import DIM

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


def max_activation(statistics: Statistics) -> float:
    """Return the size of the largest single value, max|h|; at least 0, exact over all rows.

    Source: Sun et al. 2024, who call values massive beyond 100 and 1,000 times the median size.
    """
    return statistics.max_activation


def median_activation(statistics: Statistics) -> float:
    """Return the median size of single values, median|h|; at least 0.

    Exact up to 2¹⁷ values in a layer; of more, over about as many, drawn evenly from all rows and
    dimensions and always the same ones, which is off by about 0.3 %.

    Source: Sun et al. 2024.
    """
    return statistics.median_activation


def max_activation_ratio(statistics: Statistics) -> float:
    """Return the size of the largest value over the median size, max|h|/median|h|; at least 1.

    NaN for a median of 0. See ``median_activation`` for how the median is had.

    Source: Sun et al. 2024.
    """
    median = statistics.median_activation
    return statistics.max_activation / median if median > 0 else math.nan


def variance_by_dimension(statistics: Statistics) -> FloatArray:
    """Return the variance Σ(h_k − μ_k)²/n of each dimension (dim); at least 0."""
    return statistics.variance


def kurtosis_by_dimension(statistics: Statistics) -> FloatArray:
    """Return the kurtosis Σ(h_k − μ_k)⁴/n over the variance squared of each dimension (dim).

    At least 1; 3 for a Gaussian. NaN for dimensions that do not vary.
    """
    values: FloatArray = np.full(statistics.dim, np.nan)
    return values if statistics.constant else statistics.kurtosis


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
        "max_activation",
        max_activation,
        needs="directions",
        version=1,
        long_name="size of the largest value",
        units="activation",
        range="at least 0",
        reference=_SUN,
        undefined="no rows",
    ),
    Metric(
        "median_activation",
        median_activation,
        needs="directions",
        version=1,
        long_name="median size of values",
        units="activation",
        range="at least 0",
        reference=_SUN,
        undefined="no rows",
    ),
    Metric(
        "max_activation_ratio",
        max_activation_ratio,
        needs="directions",
        version=1,
        long_name="size of the largest value over the median size",
        units="1",
        range="at least 1",
        reference=_SUN,
        undefined="rows of which half of the values are zeros",
    ),
    Metric(
        "median_norm",
        median_norm,
        needs="directions",
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
        needs="directions",
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
        needs="directions",
        version=1,
        long_name="largest norm over the median norm",
        units="1",
        range="at least 1",
        reference=_SUN,
        undefined="rows of which half are zeros",
    ),
    Metric(
        "variance_by_dimension",
        variance_by_dimension,
        needs="moments",
        version=1,
        long_name="variance of a dimension",
        units="activation²",
        range="at least 0",
        reference=_DETTMERS,
        undefined="no rows",
        dims=(DIM,),
    ),
    Metric(
        "kurtosis_by_dimension",
        kurtosis_by_dimension,
        needs="moments",
        version=1,
        long_name="kurtosis of a dimension",
        units="1",
        range="at least 1",
        reference=_SUN,
        undefined="dimensions that do not vary",
        dims=(DIM,),
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
