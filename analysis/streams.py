"""Metrics that need passes of their own over the rows of a layer, after the first one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from analysis.first_component import FirstComponent, find_first
from analysis.frequency import FREQUENCIES, FrequencyProfile, profile_groups, profile_of
from analysis.jackknife import standard_error
from analysis.krylov import PILOT_ROWS, leading_share, tile_rows
from analysis.layer import LayerStatistics
from analysis.metrics.metric import STDERR, Metric
from analysis.moments import CentralMoments
from analysis.partition import of_groups, partition_functions
from analysis.populations import Population, TokenTable
from analysis.positions import POSITIONS, PositionProfile, merge_profiles, profile_positions
from analysis.row_kernels import centre_rows
from analysis.rows import Indices, Rows, RowSource, aligned_blocks
from analysis.statistics import Statistics

Floats = npt.NDArray[np.float64]
Group = TypeVar("Group")

_NORMS: Final = (2.0**-100, 2.0**100)
"""Norms that float32 can divide by."""

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
    position = [metric for metric in metrics if metric.needs == "position"]
    if position:
        places = _places(source, layer, table, population)
        values |= _with_errors(position, places, merge_profiles, layer, population, errors=errors)
    return values


def first_of(
    source: RowSource, layer: LayerStatistics, population: Population, total: CentralMoments
) -> FirstComponent | None:
    """Return the first component of one population, None where it takes a product to find it.

    Args:
        source: The rows, in the order of their sequences; read several times.
        layer: What the first pass found.
        population: Which rows.
        total: Their moments.
    """
    members = layer.members(population)
    norms = layer.norms[members]
    if len(norms) == 0 or (
        population.unit and not _NORMS[0] < norms.min() <= norms.max() < _NORMS[1]
    ):
        return None
    sizes = np.add.reduceat(members.astype(np.int64), layer.bounds[:-1])
    centred = partial(_centred, source, layer, population)
    return find_first(centred, _pilot(source, layer, population), total, sizes)


def _measure_leading(
    source: RowSource,
    layer: LayerStatistics,
    population: Population,
    metrics: Sequence[Metric],
) -> dict[str, Floats]:

    def blocks() -> Iterator[Rows]:
        return (rows for _, rows in _chosen_rows(source, layer, population))

    found = leading_share(blocks, _pilot(source, layer, population))
    return {metric.name: np.asarray(metric.function(found), np.float64) for metric in metrics}


def _pilot(source: RowSource, layer: LayerStatistics, population: Population) -> Rows:
    """Return some rows of a population, spread over all of them."""
    members = np.flatnonzero(layer.members(population))
    chosen = np.linspace(0, len(members) - 1, min(PILOT_ROWS, len(members))).astype(np.int64)
    tokens = members[chosen]
    return _scaled(source.rows(tokens), layer, population, tokens)


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


def _places(
    source: RowSource, layer: LayerStatistics, table: TokenTable, population: Population
) -> list[PositionProfile]:
    """Return the profile of each group; of no tokens at all where positions are not known."""
    if "position" not in table.columns:
        nothing = np.zeros(POSITIONS)
        return [PositionProfile(nothing, nothing)] * (len(layer.bounds) - 1)
    return profile_positions(
        _chosen_rows(source, layer, population),
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


def _centred(
    source: RowSource, layer: LayerStatistics, population: Population, shift: Rows
) -> Iterator[Rows]:
    """Yield the rows of a population less a shift (dim), some at a time."""
    members = layer.members(population)
    factors = np.ones_like(layer.norms)
    if population.unit:
        np.divide(1.0, layer.norms, out=factors, where=members)
    for start, rows in aligned_blocks(source):
        size = tile_rows(rows)
        room = np.empty((size, rows.shape[1]), rows.dtype)
        scales = factors[start : start + len(rows)].astype(rows.dtype)
        about = shift.astype(rows.dtype)
        for first in range(0, len(rows), size):
            chosen = np.flatnonzero(members[start + first : start + min(first + size, len(rows))])
            centre_rows(rows, first + chosen, scales, about, room[: len(chosen)])
            yield room[: len(chosen)]


def _scaled(rows: Rows, layer: LayerStatistics, population: Population, tokens: Indices) -> Rows:
    if not population.unit:
        return rows
    scaled: Rows = (rows / layer.norms[tokens, None]).astype(rows.dtype)
    return scaled
