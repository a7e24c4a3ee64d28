"""Metrics that need passes of their own over the rows of a layer, after the first one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.jackknife import standard_error
from analysis.krylov import PILOT_ROWS, leading_share
from analysis.layer import LayerStatistics
from analysis.metrics.metric import STDERR, Metric
from analysis.partition import of_groups, partition_functions
from analysis.populations import Population
from analysis.rows import Indices, Rows, RowSource, aligned_blocks
from analysis.statistics import Statistics

Floats = npt.NDArray[np.float64]

STREAMED: Final = ("leading", "partition")
"""What metrics need that are computed here."""


def measure_streams(
    source: RowSource,
    layer: LayerStatistics,
    population: Population,
    metrics: Sequence[Metric],
    *,
    errors: bool,
) -> dict[str, Floats]:
    """Compute metrics of one population that need ``"leading"`` or ``"partition"``.

    Args:
        source: The rows, in the order of their sequences.
        layer: What the first pass found; with scatters for partition functions.
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
    values: dict[str, Floats] = {}
    members = layer.members(population)
    sizes = np.add.reduceat(members.astype(np.int64), layer.bounds[:-1])
    filled = np.flatnonzero(sizes).tolist()
    for metric in metrics:
        total = np.asarray(metric.function(of_groups(logarithms)), np.float64)
        values[metric.name] = total
        if errors:
            left = [np.asarray(metric.function(of_groups(logarithms, [g]))) for g in filled]
            values[metric.name + STDERR] = standard_error(total, left, sizes[filled].tolist())
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
