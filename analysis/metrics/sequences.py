"""Metrics of sequences as paths and as sets of rows, averaged over the sequences."""

from __future__ import annotations

import math

from analysis.metrics.metric import Metric
from analysis.statistics import Statistics

_SKEAN = "Skean et al. 2025, arXiv:2502.02013"
_TYPICAL = "rows without sequences, and typical rows, of which some are missing from the path"


def curvature(statistics: Statistics) -> float:
    """Return the mean angle between successive increments h_{t+1} − h_t, in radians.

    The mean within each sequence, averaged over sequences; in [0, π]: 0 for a straight line, and
    2π/3 for independent rows in many dimensions. Increments of zero are left out.

    Source: Hosseini & Fedorenko 2023.
    """
    shapes = statistics.shapes
    return shapes.curvature / shapes.n_curved if shapes.n_curved else math.nan


def prompt_entropy(statistics: Statistics) -> float:
    """Return the von Neumann entropy of the Gram matrix of the rows of a sequence, in nats.

    −Σp log p with p the eigenvalues of HHᵀ over their sum, averaged over sequences; in
    [0, log min(n_q, d)].

    Source: Skean et al. 2025, order 1.
    """
    shapes = statistics.shapes
    return shapes.entropy / shapes.n_spread if shapes.n_spread else math.nan


def prompt_entropy_2(statistics: Statistics) -> float:
    """Return the Rényi entropy of order 2 of the Gram matrix of a sequence, in nats.

    −log Σp² with p the eigenvalues of HHᵀ over their sum, averaged over sequences; in
    [0, log min(n_q, d)].

    Source: Skean et al. 2025, order 2.
    """
    shapes = statistics.shapes
    return shapes.collision / shapes.n_spread if shapes.n_spread else math.nan


SEQUENCE_METRICS = (
    Metric(
        "curvature",
        curvature,
        needs="sequences",
        version=1,
        long_name="mean angle between successive increments",
        units="rad",
        range="0 to π",
        reference="Hosseini & Fedorenko 2023, arXiv:2311.04930",
        undefined=_TYPICAL,
    ),
    Metric(
        "prompt_entropy",
        prompt_entropy,
        needs="sequences",
        version=1,
        long_name="entropy of the rows of a sequence",
        units="nat",
        range="0 to log min(n_q, d)",
        reference=_SKEAN,
        undefined=_TYPICAL,
    ),
    Metric(
        "prompt_entropy_2",
        prompt_entropy_2,
        needs="sequences",
        version=1,
        long_name="Rényi entropy of order 2 of the rows of a sequence",
        units="nat",
        range="0 to log min(n_q, d)",
        reference=_SKEAN,
        undefined=_TYPICAL,
    ),
)
