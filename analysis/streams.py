"""Metrics that need passes of their own over the rows of a layer, after the first one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from analysis.frequency import FREQUENCIES, FrequencyProfile, profile_groups, profile_of
from analysis.jackknife import standard_error
from analysis.krylov import leading_share
from analysis.layer import LayerStatistics
from analysis.metrics.metric import STDERR, Metric
from analysis.partition import of_groups, partition_functions
from analysis.population_rows import PopulationRows
from analysis.populations import Population, TokenTable
from analysis.positions import POSITIONS, PositionProfile, merge_profiles, profile_positions
from analysis.rows import RowSource
from analysis.statistics import Statistics

Floats = npt.NDArray[np.float64]
Group = TypeVar("Group")

STREAMED: Final = ("leading", "partition", "frequency", "position")
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
    rows = PopulationRows(source, layer, population)
    leading = [metric for metric in metrics if metric.needs == "leading"]
    if leading:
        values |= _measure_leading(rows, leading)
    partition = [metric for metric in metrics if metric.needs == "partition"]
    if partition:
        values |= _measure_partition(rows, layer, population, partition, errors=errors)
    frequency = [metric for metric in metrics if metric.needs == "frequency"]
    if frequency:
        profiles = _profiles(rows, layer, table, population)
        values |= _with_errors(frequency, profiles, profile_of, layer, population, errors=errors)
    position = [metric for metric in metrics if metric.needs == "position"]
    if position:
        places = _places(rows, layer, table)
        values |= _with_errors(position, places, merge_profiles, layer, population, errors=errors)
    return values


def _measure_leading(rows: PopulationRows, metrics: Sequence[Metric]) -> dict[str, Floats]:
    found = leading_share(lambda: (block for _, block in rows.blocks()), rows.pilot())
    return {metric.name: np.asarray(metric.function(found), np.float64) for metric in metrics}


def _measure_partition(
    rows: PopulationRows,
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
    logarithms = partition_functions(rows.grouped(), axes, groups)
    return _with_errors(metrics, list(logarithms), of_groups, layer, population, errors=errors)


def _profiles(
    rows: PopulationRows, layer: LayerStatistics, table: TokenTable, population: Population
) -> list[FrequencyProfile]:
    """Return the profile of each group; of no rows at all where token ids are not known."""
    if table.frequencies is None:
        nothing = np.full(len(FREQUENCIES), np.nan)
        return [FrequencyProfile(*(nothing,) * 4)] * (len(layer.bounds) - 1)
    profiles = profile_groups(
        rows.blocks(),
        bins=table.frequencies,
        norms=np.where(layer.norms > 0, 1.0, 0.0) if population.unit else layer.norms,
        mean=layer.total(population).central.mean,
        bounds=layer.bounds,
    )
    return list(profiles)


def _places(
    rows: PopulationRows, layer: LayerStatistics, table: TokenTable
) -> list[PositionProfile]:
    """Return the profile of each group; of no tokens at all where positions are not known."""
    if "position" not in table.columns:
        nothing = np.zeros(POSITIONS)
        return [PositionProfile(nothing, nothing)] * (len(layer.bounds) - 1)
    return profile_positions(
        rows.blocks(),
        position=table.columns["position"].astype(np.int64),
        bounds=layer.bounds,
    )


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
