"""All metrics of one layer: the pass over its rows, the sample, and what is finished from them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from analysis.first_component import FirstComponent, find_first
from analysis.jackknife import leave_out_groups, standard_error
from analysis.layer import LayerStatistics
from analysis.metrics.metric import STDERR, Metric
from analysis.neighborhoods import Sample, choose_rows, measure_neighborhood, sample_tokens
from analysis.onepass import pass_over, pass_over_all
from analysis.outliers import DROPPED
from analysis.plan import Plan, Results, asks_first_alone, moment_metrics, request_of
from analysis.population_rows import PopulationRows
from analysis.populations import CONTENT, FIRST, SPECIAL, UNCHOSEN, Population, TokenTable
from analysis.request import Request
from analysis.rows import RowSource
from analysis.statistics import Statistics
from analysis.streams import STREAMED, measure_streams
from store.freed_memory import give_back_freed

Floats = npt.NDArray[np.float64]


def measure_layer(source: RowSource, table: TokenTable, plan: Plan) -> Results:
    """Compute the metrics of one layer, reading its rows once.

    Args:
        source: The rows, in the order of their sequences.
        table: What is known about them.
        plan: What to compute.

    Returns:
        For each variable (the metrics, their standard errors, and counts) its value in each
        population that it was computed for.

    Raises:
        TooFewRowsError: If there are no rows.
        NonFiniteRowsError: If rows hold NaN or infinity and are not to be dropped.
        InputError: If the rows do not fit the table.
    """
    choices = _choices(table, plan)
    passed = [choice for choice in choices if _needs_pass(choice[1])]
    wanted = [
        (rows, _request(rows, part, source.width, products=not _first_alone(source, part)))
        for rows, part in passed
    ]
    found = pass_over_all(source, wanted)
    layers = dict(zip((part for _, part in passed), found, strict=True))
    del found
    results: Results = {}
    for rows, part in choices:
        median = math.nan
        if part in layers:
            # What is known of the layer is let go before rows of it are searched for neighbours.
            layer = layers.pop(part)
            median = layer.median
            for name, values in finish_moments(source, layer, rows, part).items():
                results.setdefault(name, {}).update(values)
            del layer
        _put_neighbors(results, source, rows, part, median)
    return results


def _first_alone(source: RowSource, plan: Plan) -> bool:
    return source.held and asks_first_alone(plan, source.width)


def _request(table: TokenTable, plan: Plan, width: int, *, products: bool = True) -> Request:
    """Return what a pass collects, in float64 at once where float32 would not do."""
    request = request_of(plan, products=products)
    content = int((table.codes == CONTENT).sum())
    counts = [content if one.from_content else table.n for one in request.populations]
    # Of fewer rows than dimensions some eigenvalues are 0, which float32 cannot tell.
    precise = request.scatter and any(0 < count <= width for count in counts)
    return replace(request, precise=precise)


def _needs_pass(plan: Plan) -> bool:
    """Return whether all rows are passed over, for their moments or their median norm."""
    typical = any(population.typical for population in plan.neighbor_populations)
    return bool(moment_metrics(plan) and plan.populations) or typical


def _choices(table: TokenTable, plan: Plan) -> list[tuple[TokenTable, Plan]]:
    """Return what is to be measured of all rows, and of those that each expression chooses.

    The latter are content in tables of their own.
    """
    every = dict.fromkeys((*plan.populations, *plan.neighbor_populations))
    chosen = [one for one in every if one.expression is not None]
    parts: list[tuple[TokenTable, Plan]] = []
    if len(chosen) < len(every):
        parts.append((table, _of_populations(plan, set(every) - set(chosen))))
    for one in chosen:
        assert one.expression is not None
        parts.append((table.choose(one.expression), _of_populations(plan, {one})))
    return parts


def _of_populations(plan: Plan, kept: Collection[Population]) -> Plan:
    return replace(
        plan,
        populations=tuple(one for one in plan.populations if one in kept),
        neighbor_populations=tuple(one for one in plan.neighbor_populations if one in kept),
    )


def finish_moments(
    source: RowSource, layer: LayerStatistics, table: TokenTable, plan: Plan
) -> Results:
    """Finish the metrics of every population, from a pass in float64 where one is blurred.

    Populations of the same rows, as ``content`` and ``typical`` without outliers, are one.

    Args:
        source: The rows, for metrics that read them again.
        layer: What a pass over them found.
        table: What is known about them.
        plan: What to compute; metrics of neighbours are left out.
    """
    metrics = moment_metrics(plan)
    spectral = any(metric.needs == "spectrum" for metric in metrics)
    results: Results = {}
    known: dict[tuple[bool, bytes], dict[str, Floats]] = {}
    for population in plan.populations:
        rows = (population.unit, layer.members(population).tobytes())
        if rows in known:
            _put(results, population, known[rows] | _counts(layer, table, population))
            continue
        moments = layer.total(population)
        total, first = Statistics(moments), None
        if layer.scatter and total.blurred:
            precise = pass_over(source, table, replace(request_of(plan), precise=True))
            return finish_moments(source, precise, table, plan)
        if spectral and not (layer.scatter or total.constant):
            first = find_first(PopulationRows(source, layer, population), moments.central)
            if first is None:
                whole = pass_over(source, table, _request(table, plan, layer.dim))
                return finish_moments(source, whole, table, plan)
            total = Statistics(moments, first=first.share)
        once = [metric for metric in metrics if metric.needs not in STREAMED]
        again = [metric for metric in metrics if metric.needs in STREAMED]
        known[rows] = _moment_values(layer, total, population, once, plan, first)
        known[rows] |= measure_streams(source, layer, table, population, again, errors=plan.errors)
        _put(results, population, known[rows] | _counts(layer, table, population))
    return results


def _moment_values(
    layer: LayerStatistics,
    total: Statistics,
    population: Population,
    metrics: Sequence[Metric],
    plan: Plan,
    first: FirstComponent | None,
) -> dict[str, Floats]:
    values = {metric.name: _value(metric, total) for metric in metrics}
    if plan.errors:
        left = leave_out_groups(layer, population, total, first)
        sizes = [size for size, _ in left]
        for metric in metrics:
            without = [_value(metric, statistics) for _, statistics in left]
            error = standard_error(values[metric.name], without, sizes)
            values[metric.name + STDERR] = error
    return values


def _counts(layer: LayerStatistics, table: TokenTable, population: Population) -> dict[str, Floats]:
    finite = layer.parts != DROPPED
    content = finite & (table.codes == CONTENT)
    left_out = {
        "n_dropped_nonfinite": ~finite,
        "n_dropped_special": finite & (table.codes == SPECIAL) & population.from_content,
        "n_dropped_first": finite & (table.codes == FIRST) & population.from_content,
        "n_dropped_outlier": content & population.typical & ~layer.members(population),
        "n_dropped_zero": content & population.unit & (layer.norms == 0),
    }
    if population.expression is not None:
        left_out["n_dropped_unchosen"] = finite & (table.codes == UNCHOSEN)
    counts = {name: int(rows.sum()) for name, rows in left_out.items()}
    members = layer.members(population)
    counts["n"] = int(members.sum())
    if table.sequence is not None:
        changes = np.diff(table.sequence[members]) != 0
        counts["n_sequences"] = int(members.any()) + int(changes.sum())
    return {name: np.asarray(float(count)) for name, count in counts.items()}


def _put_neighbors(
    results: Results,
    source: RowSource,
    table: TokenTable,
    plan: Plan,
    median: float,
) -> None:
    metrics = tuple(metric for metric in plan.metrics if metric.needs == "neighbors")
    if metrics:
        give_back_freed()
        for population in plan.neighbor_populations:
            values = _neighbor_values(source, table, population, metrics, plan, median)
            _put(results, population, values)
        give_back_freed()


def _neighbor_values(
    source: RowSource,
    table: TokenTable,
    population: Population,
    metrics: tuple[Metric, ...],
    plan: Plan,
    median: float,
) -> dict[str, Floats]:
    content = population.from_content
    tokens = sample_tokens(table, plan.sample, plan.seed, content=content)
    sequence = None if table.sequence is None else table.sequence[tokens]
    sample = choose_rows(
        Sample(source.rows(tokens), sequence),
        population,
        median,
        drop_nonfinite=plan.drop_nonfinite,
    )
    found = measure_neighborhood(
        sample,
        metrics,
        seed=plan.seed,
        errors=plan.errors,
        exclude_own_sequence=plan.exclude_own_sequence,
        threads=plan.threads,
    )
    values = found.values | {name + STDERR: error for name, error in found.errors.items()}
    values["neighbors_n"] = np.asarray(float(found.n))
    values["neighbors_n_duplicates"] = np.asarray(float(found.n_duplicates))
    return values


def _value(metric: Metric, statistics: Statistics) -> Floats:
    return np.asarray(metric.function(statistics), np.float64)


def _put(results: Results, population: Population, values: dict[str, Floats]) -> None:
    for name, value in values.items():
        results.setdefault(name, {})[population.name] = value
