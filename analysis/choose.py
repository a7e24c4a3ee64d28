"""Turning names of metrics and populations into a plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analysis.errors import UnknownMetricError
from analysis.evaluate import SAMPLE_ROWS, Plan
from analysis.metrics import METRICS, Metric
from analysis.populations import POPULATIONS, choose_populations


def make_plan(
    metrics: Iterable[str | Metric] | None,
    populations: Sequence[str] | None,
    *,
    labelled: bool,
    errors: bool = True,
    seed: int = 0,
    sample: int = SAMPLE_ROWS,
    threads: int = 1,
) -> Plan:
    """Return what is to be measured.

    Args:
        metrics: Names of metrics, or metrics of one's own; None for all of ``METRICS``.
        populations: Names of populations; None for all of them for metrics of moments, and
            ``content`` alone for metrics of neighbours, whose time grows with the square of n.
        labelled: Whether content can be told from the other rows; all rows are taken otherwise.
        errors: Whether standard errors are computed.
        seed: Seed of the sample that neighbours are sought in.
        sample: Rows of that sample.
        threads: Threads of the search for neighbours.

    Raises:
        UnknownMetricError: If there is no metric of a name.
        UnknownPopulationError: If there is no population of a name.
        InputError: If a population cannot be told apart.
    """
    chosen = dict.fromkeys(METRICS.values() if metrics is None else map(_metric, metrics))
    everywhere = choose_populations(populations, labelled=labelled)
    single = (POPULATIONS["content" if labelled else "all"],)
    return Plan(
        metrics=tuple(chosen),
        populations=everywhere,
        neighbor_populations=single if populations is None else everywhere,
        errors=errors,
        seed=seed,
        sample=sample,
        threads=threads,
    )


def _metric(metric: str | Metric) -> Metric:
    if isinstance(metric, Metric):
        return metric
    if metric not in METRICS:
        raise UnknownMetricError(metric, METRICS)
    return METRICS[metric]
