"""Metrics of sites that keep one number a token, as the reductions of attention rows do."""

from __future__ import annotations

from typing import Final

import numpy as np

from analysis.metrics.metric import Metric
from analysis.statistics import Statistics

SINK: Final = 0.3
"""Mean attention to the first key above which a head counts as a sink."""

_GODEY = "Godey et al. 2024, arXiv:2401.12143"


def mean(statistics: Statistics) -> float:
    """Return the mean over tokens."""
    return float(statistics.mean[0])


def deviation(statistics: Statistics) -> float:
    """Return the standard deviation over tokens; at least 0."""
    return float(np.sqrt(statistics.variance[0]))


VALUE_METRICS = (
    Metric(
        "mean",
        mean,
        needs="moments",
        version=1,
        long_name="mean over tokens",
        units="1",
        range="that of the site",
        reference=_GODEY,
        undefined="no tokens",
    ),
    Metric(
        "deviation",
        deviation,
        needs="moments",
        version=1,
        long_name="standard deviation over tokens",
        units="1",
        range="at least 0",
        reference=_GODEY,
        undefined="no tokens",
    ),
)
