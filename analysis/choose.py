"""Turning names of metrics and populations, and functions of users, into a plan."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence

from analysis.errors import InputError, UnknownMetricError
from analysis.metrics import METRICS, Metric
from analysis.metrics.metric import FloatArray
from analysis.plan import SAMPLE_ROWS, Plan
from analysis.populations import POPULATIONS, choose_populations
from analysis.statistics import Statistics

MetricFunction = Callable[[Statistics], float | FloatArray]
"""A metric of one's own: a function of the statistics of a population."""

MetricLike = str | Metric | MetricFunction
"""A name of ``METRICS``, ``module:function``, a metric, or a function."""


def make_plan(
    metrics: Iterable[MetricLike] | None,
    populations: Sequence[str] | None,
    *,
    labelled: bool,
    errors: bool = True,
    seed: int = 0,
    sample: int = SAMPLE_ROWS,
    threads: int = 1,
    exclude_own_sequence: bool = False,
    memory: int | None = None,
) -> Plan:
    """Return what is to be measured.

    Args:
        metrics: Metrics or names of metrics; None for those of ``METRICS`` that
            are computed by default.
        populations: Names of populations; None for all of them for metrics of moments, and
            ``content`` alone for metrics of neighbours, whose time grows with the square of n.
        labelled: Whether content can be told from the other rows; all rows are taken otherwise.
        errors: Whether standard errors are computed.
        seed: Seed of the sample that neighbours are sought in.
        sample: Rows of that sample.
        threads: Threads of the search for neighbours.
        exclude_own_sequence: Whether neighbours are sought in other sequences only.
        memory: Bytes that a worker has, None where that was not stated.

    Raises:
        UnknownMetricError: If there is no metric of a name.
        UnknownPopulationError: If there is no population of a name.
        InputError: If a population cannot be told apart, two metrics have one name, a list of
            names is one text, or the sample has fewer than three rows.
    """
    if isinstance(populations, str):
        raise InputError(f"populations are one text: expected a list, [{populations!r}]")
    if sample < 3:
        raise InputError(f"a sample of {sample} rows was asked for: expected 3 or more")
    default = (metric for metric in METRICS.values() if metric.default)
    wanted = default if metrics is None else map(find_metric, _listed(metrics))
    chosen = tuple(dict.fromkeys(wanted))
    names = [metric.name for metric in chosen]
    if len(set(names)) < len(names):
        raise InputError(f"two different metrics have one name, in {names}; rename one of them")
    everywhere = choose_populations(populations, labelled=labelled)
    single = (POPULATIONS["content" if labelled else "all"],)
    return Plan(
        metrics=chosen,
        populations=everywhere,
        neighbor_populations=single if populations is None else everywhere,
        errors=errors,
        seed=seed,
        sample=sample,
        threads=threads,
        exclude_own_sequence=exclude_own_sequence,
        memory=memory,
    )


def _listed(metrics: object) -> Iterable[MetricLike]:
    """Return metrics that were given as a list, or as a dictionary like ``METRICS``.

    Raises:
        InputError: If it is one metric, or nothing that can be gone through.
    """
    if isinstance(metrics, Mapping):
        return list(metrics.values())
    if isinstance(metrics, str):
        raise InputError(f"metrics are one text: expected a list, [{metrics!r}]")
    if not isinstance(metrics, Iterable):
        what = f"the metric {metrics.name}" if isinstance(metrics, Metric) else repr(metrics)
        raise InputError(f"metrics are {what}: expected a list of metrics, [it] for it alone")
    return metrics


def find_metric(metric: MetricLike) -> Metric:
    """Return a metric by its name, or made of a function.

    Args:
        metric: A name of ``METRICS``; ``module:name`` of a metric or a function that can be
            imported; a metric; or a function of ``Statistics``.

    Raises:
        UnknownMetricError: If there is no metric of that name.
        InputError: If ``module:name`` cannot be imported, or is neither a metric nor a function.
    """
    if isinstance(metric, Metric):
        return metric
    if not (isinstance(metric, str) or callable(metric)):
        raise InputError(
            f"{metric!r:.60} is no metric: expected names, a Metric or a function of Statistics, as"
            " in ['average_cosine', METRICS['two_nn']]"
        )
    if not isinstance(metric, str):
        return _of_function(metric)
    if ":" in metric:
        return _imported(metric)
    if metric not in METRICS:
        raise UnknownMetricError(metric, METRICS)
    return METRICS[metric]


def _imported(name: str) -> Metric:
    module_name, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"metric {name!r} cannot be imported ({error}); expected MODULE:FUNCTION with the"
            " module on the Python path, for example PYTHONPATH=. and metrics:my_metric"
        ) from error
    if isinstance(found, Metric):
        return found
    if not callable(found):
        raise InputError(
            f"metric {name!r} is a {type(found).__name__}; expected a function of Statistics, or"
            " a Metric"
        )
    return _of_function(found)


def _of_function(function: MetricFunction) -> Metric:
    name = getattr(function, "__name__", "")
    if not name.isidentifier():
        raise InputError(
            f"a metric needs a name to store its values under, got {function!r}; define it with"
            " def, or wrap it in Metric(name, ...)"
        )
    about = (inspect.getdoc(function) or name).splitlines()[0].rstrip(".")
    return Metric(
        name,
        function,
        needs="spectrum",
        version=1,
        long_name=about,
        units="1",
        range="not stated",
        reference=f"{function.__module__}:{name}",
        undefined="not stated",
    )
