"""Metrics of sites that keep one number a token, as the reductions of attention do."""

from __future__ import annotations

from typing import Final

import numpy as np

from analysis.metrics.metric import FloatArray, Metric
from analysis.positions import PositionProfile
from analysis.statistics import Statistics
from store.schema import TOKEN_POSITION

SINK: Final = 0.3
"""Mean attention to a key above which a head counts as a sink."""

_GODEY = "Godey et al. 2024, arXiv:2401.12143"


def mean(statistics: Statistics) -> float:
    """Return the mean over tokens."""
    return float(statistics.mean[0])


def deviation(statistics: Statistics) -> float:
    """Return the standard deviation over tokens; at least 0."""
    return float(np.sqrt(statistics.variance[0]))


def mean_by_position(found: PositionProfile) -> FloatArray:
    """Return the mean over the tokens at each position (token_position) of their sequences.

    Of ``attention_received`` it is the mean attention to the key at that position.
    """
    empty = np.full_like(found.totals, np.nan)
    return np.divide(found.totals, found.n, out=empty, where=found.n > 0)


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
    Metric(
        "mean_by_position",
        mean_by_position,
        needs="position",
        version=1,
        long_name="mean over tokens at a position",
        units="1",
        range="that of the site",
        reference="Gu et al. 2025, arXiv:2410.10781",
        undefined="no tokens there",
        dims=(TOKEN_POSITION,),
    ),
)
