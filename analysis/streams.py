"""Metrics that need passes of their own over the rows of a layer, after the first one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from analysis.frequency import FREQUENCIES, FrequencyProfile, profile_groups, profile_of
from analysis.jackknife import standard_error
from analysis.krylov import PILOT_ROWS, leading_share
from analysis.layer import LayerStatistics
from analysis.metrics.metric import STDERR, Metric
from analysis.partition import of_groups, partition_functions
from analysis.populations import Population, TokenTable
from analysis.rows import Indices, Rows, RowSource, aligned_blocks
from analysis.statistics import Statistics

Floats = npt.NDArray[np.float64]
Group = TypeVar("Group")

STREAMED: Final = ("leading", "partition", "frequency")
"""What metrics need that are computed here."""


def measure_streams(
    source: RowSource,
    layer: LayerStatistics,
    table: TokenTable,
    population: Population,
    metrics: Sequence[Metric],
    *,
    errors: bool,
) -> dict[str, Floats]:
    """Compute metrics of one population that need what is in ``STREAMED``.

    Args:
        source: The rows, in the order of their sequences.
        layer: What the first pass found; with scatters for partition functions.
        table: What is known about the rows.
        population: Which rows.
        metrics: The metrics.
        errors: Whether standard errors are wanted; of the leading share there are none.
    """
    values: dict[str, Floats] = {}
    leading = [metric for metric in metrics if metric.needs == "leading"]
    if leading:
        values |= _measure_leading(source, layer, population, leading)
    partition = [metric for metric in metrics if metric.needs == "partition"]
    if partition:
        values |= _measure_partition(source, layer, population, partition, errors=errors)
    frequency = [metric for metric in metrics if metric.needs == "frequency"]
    if frequency:
        profiles = _profiles(source, layer, table, population)
        values |= _with_errors(frequency, profiles, profile_of, layer, population, errors=errors)
    return values


def _measure_leading(
    source: RowSource,
    layer: LayerStatistics,
    population: Population,
    metrics: Sequence[Metric],
) -> dict[str, Floats]:
    members = np.flatnonzero(layer.members(population))
    chosen = np.linspace(0, len(members) - 1, min(PILOT_ROWS, len(members))).astype(np.int64)
    tokens = members[chosen]
    pilot = _scaled(source.rows(tokens), layer, population, tokens)

    def blocks() -> Iterator[Rows]:
        return (rows for _, rows in _chosen_rows(source, layer, population))

    found = leading_share(blocks, pilot)
    return {metric.name: np.asarray(metric.function(found), np.float64) for metric in metrics}


def _measure_partition(
    source: RowSource,
    layer: LayerStatistics,
    population: Population,
    metrics: Sequence[Metric],
    *,
    errors: bool,
) -> dict[str, Floats]:
    statistics = Statistics(layer.total(population))
    if statistics.n == 0:
        return {metric.name: np.asarray(np.nan) for metric in metrics}
    whole = statistics.scatter + statistics.n * np.multiply.outer(statistics.mean, statistics.mean)
    axes = np.linalg.eigh(whole)[1].astype(np.float64)
    groups = len(layer.bounds) - 1
    logarithms = partition_functions(_grouped(source, layer, population), axes, groups)
    return _with_errors(metrics, list(logarithms), of_groups, layer, population, errors=errors)


def _profiles(
    source: RowSource, layer: LayerStatistics, table: TokenTable, population: Population
) -> list[FrequencyProfile]:
    """Return the profile of each group; of no rows at all where token ids are not known."""
    if table.frequencies is None:
        nothing = np.full(len(FREQUENCIES), np.nan)
        return [FrequencyProfile(*(nothing,) * 4)] * (len(layer.bounds) - 1)
    profiles = profile_groups(
        _chosen_rows(source, layer, population),
        bins=table.frequencies,
        norms=np.where(layer.norms > 0, 1.0, 0.0) if population.unit else layer.norms,
        mean=layer.total(population).central.mean,
        bounds=layer.bounds,
    )
    return list(profiles)


def _with_errors(
    metrics: Sequence[Metric],
    groups: Sequence[Group],
    merge: Callable[[Sequence[Group]], object],
    layer: LayerStatistics,
    population: Population,
    *,
    errors: bool,
) -> dict[str, Floats]:
    """Finish metrics from what is known of each group, and from all but each group in turn."""
    values: dict[str, Floats] = {}
    members = layer.members(population).astype(np.int64)
    sizes = np.add.reduceat(members, layer.bounds[:-1])
    filled = np.flatnonzero(sizes).tolist()
    whole = merge(groups)
    left = [merge([*groups[:index], *groups[index + 1 :]]) for index in filled] if errors else []
    for metric in metrics:
        total = np.asarray(metric.function(whole), np.float64)
        values[metric.name] = total
        if errors:
            without = [np.asarray(metric.function(one), np.float64) for one in left]
            error = standard_error(total, without, sizes[filled].tolist())
            values[metric.name + STDERR] = error
    return values


def _grouped(
    source: RowSource, layer: LayerStatistics, population: Population
) -> Iterator[tuple[int, Rows]]:
    """Yield the rows of a population with the group of sequences that they belong to."""
    for tokens, rows in _chosen_rows(source, layer, population):
        groups = np.searchsorted(layer.bounds, tokens, side="right") - 1
        for group in np.unique(groups).tolist():
            yield group, rows[groups == group]


def _chosen_rows(
    source: RowSource, layer: LayerStatistics, population: Population
) -> Iterator[tuple[Indices, Rows]]:
    """Yield the numbers of rows of a population, and the rows."""
    members = layer.members(population)
    for start, rows in aligned_blocks(source):
        here = np.flatnonzero(members[start : start + len(rows)])
        kept = rows if len(here) == len(rows) else rows[here]
        yield start + here, _scaled(kept, layer, population, start + here)


def _scaled(rows: Rows, layer: LayerStatistics, population: Population, tokens: Indices) -> Rows:
    if not population.unit:
        return rows
    scaled: Rows = (rows / layer.norms[tokens, None]).astype(rows.dtype)
    return scaled
