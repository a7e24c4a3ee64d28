"""What is to be measured of every layer, and what a pass over its rows has to collect for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.metrics.metric import Metric
from analysis.populations import Population
from analysis.request import Request

Floats = npt.NDArray[np.float64]

NARROW: Final = 256
"""Width up to which a product of all dimensions is cheaper than a few passes with directions."""

SAMPLE_ROWS: Final = 10_000
"""Rows among which neighbours are sought, unless told otherwise."""


@dataclass(frozen=True)
class Plan:
    """What is to be measured of every layer.

    Attributes:
        metrics: Metrics of moments and of neighbours.
        populations: Populations that metrics of moments are computed for.
        neighbor_populations: Populations that metrics of neighbours are computed for.
        errors: Whether standard errors are computed.
        seed: Seed of the sample that neighbours are sought in.
        sample: Rows of that sample.
        threads: Threads of the search for neighbours.
        drop_nonfinite: Whether rows with NaN or infinity are left out, instead of refused.
        exclude_own_sequence: Whether neighbours are sought in other sequences only.
        memory: Bytes that a worker has, None where that was not stated.
    """

    metrics: tuple[Metric, ...]
    populations: tuple[Population, ...]
    neighbor_populations: tuple[Population, ...]
    errors: bool = True
    seed: int = 0
    sample: int = SAMPLE_ROWS
    threads: int = 1
    drop_nonfinite: bool = False
    exclude_own_sequence: bool = False
    memory: int | None = None


Results = dict[str, dict[str, Floats]]
"""Values by variable and population."""
"""Values by variable and population."""


def moment_metrics(plan: Plan) -> tuple[Metric, ...]:
    """Return the metrics of a plan that are finished from a pass over all rows."""
    return tuple(metric for metric in plan.metrics if metric.needs != "neighbors")


def asks_first_alone(plan: Plan, width: int) -> bool:
    """Return whether the first component is asked for, and nothing that needs all of them.

    Not of narrow rows: a product of their dimensions takes less than the passes that save it.

    Args:
        plan: What is measured.
        width: Width of the rows.
    """
    if width <= NARROW:
        return False
    metrics = [one for one in moment_metrics(plan) if one.needs in ("spectrum", "partition")]
    return bool(metrics) and all(metric.first_only for metric in metrics)


def request_of(plan: Plan, *, products: bool = True) -> Request:
    """Return what a pass has to collect for a plan.

    Args:
        plan: What is measured.
        products: Whether spectra come of products between dimensions; the first component alone of
            rows that are in memory does not.
    """
    metrics = moment_metrics(plan)
    spectral = any(metric.needs in ("spectrum", "partition") for metric in metrics)
    scatter = spectral and products
    central = spectral or any(metric.needs in ("moments", "frequency") for metric in metrics)
    return Request(
        plan.populations if metrics else plan.neighbor_populations,
        scatter=scatter,
        central=central,
        shapes=any(metric.needs == "sequences" for metric in metrics),
        errors=scatter and plan.errors,
        grouped=plan.errors,
        drop_nonfinite=plan.drop_nonfinite,
        memory=plan.memory,
    )
