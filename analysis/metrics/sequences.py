"""Metrics of sequences as paths and as sets of rows, averaged over the sequences."""

from __future__ import annotations

import math

import numpy as np

from analysis.metrics.metric import FloatArray, Metric
from analysis.shapes import RENYI_ORDERS
from analysis.statistics import Statistics
from store.schema import ORDER

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
    return float(prompt_entropy_by_order(statistics)[RENYI_ORDERS.index(1)])


def prompt_entropy_2(statistics: Statistics) -> float:
    """Return the Rényi entropy of order 2 of the Gram matrix of a sequence, in nats.

    −log Σp² with p the eigenvalues of HHᵀ over their sum, averaged over sequences; in
    [0, log min(n_q, d)].

    Source: Skean et al. 2025, order 2.
    """
    return float(prompt_entropy_by_order(statistics)[RENYI_ORDERS.index(2)])


def prompt_entropy_by_order(statistics: Statistics) -> FloatArray:
    """Return the Rényi entropies (order) of the Gram matrix of a sequence, in nats.

    log Σp^α/(1 − α) with p the eigenvalues of HHᵀ over their sum, and its limit −Σp log p for
    α = 1, averaged over sequences; in [0, log min(n_q, d)] and falling in α. Small orders count
    directions, large ones see the first alone. Eigenvalues below the rounding of float64 count as
    0, to which orders below 1 are the most sensitive.

    Source: Skean et al. 2025, equation 1.
    """
    shapes = statistics.shapes
    if not shapes.n_spread:
        return np.full(len(RENYI_ORDERS), np.nan)
    return shapes.entropies / shapes.n_spread


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
    Metric(
        "prompt_entropy_by_order",
        prompt_entropy_by_order,
        needs="sequences",
        version=1,
        long_name="Rényi entropy of the rows of a sequence by order",
        units="nat",
        range="0 to log min(n_q, d)",
        reference=_SKEAN,
        undefined=_TYPICAL,
        dims=(ORDER,),
    ),
)
