"""The mean row, and how far it lies from the origin."""

from __future__ import annotations

import math

import numpy as np

from analysis.metrics.metric import FloatArray, Metric
from analysis.statistics import Statistics
from store.schema import DIM

_GODEY = "Godey et al. 2024, arXiv:2401.12143"


def drift_norm(statistics: Statistics) -> float:
    """Return the norm of the mean row, ‖μ‖; at least 0, in units of the activations.

    Source: Godey et al. 2024.
    """
    return float(np.linalg.norm(statistics.mean))


def drift_ratio(statistics: Statistics) -> float:
    """Return the norm of the mean row relative to the mean norm, ‖μ‖/mean‖h‖; in [0, 1].

    Near the square root of the average cosine when the norms are equal. NaN for rows of zeros.

    Source: Godey et al. 2024.
    """
    norm = mean_norm(statistics)
    return drift_norm(statistics) / norm if norm > 0 else math.nan


def mean_row(statistics: Statistics) -> FloatArray:
    """Return the mean row μ (dim); of unit rows it is the mean direction."""
    return statistics.mean


def mean_norm(statistics: Statistics) -> float:
    """Return the mean norm of the rows, mean‖h‖; at least 0."""
    return float(statistics.norms.mean()) if statistics.n else math.nan


DRIFT_METRICS = (
    Metric(
        "drift_norm",
        drift_norm,
        needs="moments",
        version=1,
        long_name="norm of the mean row",
        units="activation",
        range="at least 0",
        reference=_GODEY,
        undefined="no rows",
    ),
    Metric(
        "drift_ratio",
        drift_ratio,
        needs="moments",
        version=1,
        long_name="norm of the mean row over the mean norm",
        units="1",
        range="0 to 1",
        reference=_GODEY,
        undefined="rows of zeros only",
    ),
    Metric(
        "mean_row",
        mean_row,
        needs="moments",
        version=1,
        long_name="mean row",
        units="activation",
        range="any real numbers",
        reference=_GODEY,
        undefined="no rows",
        dims=(DIM,),
    ),
    Metric(
        "mean_norm",
        mean_norm,
        needs="directions",
        version=1,
        long_name="mean norm of the rows",
        units="activation",
        range="at least 0",
        reference=_GODEY,
        undefined="no rows",
    ),
)
