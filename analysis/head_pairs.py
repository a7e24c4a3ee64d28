"""Queries and keys of each head measured together: both read once, by group of sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import xarray as xr

from analysis.blas import one_blas_thread
from analysis.groups import group_bounds
from analysis.head_sums import HeadPair, HeadSums, Members, sum_heads
from analysis.jackknife import standard_error
from analysis.metrics.metric import STDERR, Metric
from analysis.populations import CONTENT, Population, TokenTable
from analysis.results import attributes
from analysis.tasks import stored_table
from store.schema import BLOCK, HEAD, POPULATION, STEP
from store.slab import Slab

Floats = npt.NDArray[np.float64]

COUNTS: Final = {
    "query_key_n": "rows that queries and keys are compared over",
    "query_key_n_sequences": "sequences with such a row",
}
"""Variables that say how much queries and keys together are about."""


@dataclass(frozen=True)
class HeadPairTask:
    """Queries and keys of one block.

    Attributes:
        queries: The queries.
        keys: The keys.
        suffix: What follows the names of the results.
        metrics: What is measured.
        populations: Of which rows.
        drop_nonfinite: Whether rows with NaN or infinity are left out, instead of refused.
    """

    queries: Slab
    keys: Slab
    suffix: str
    metrics: tuple[Metric, ...]
    populations: tuple[Population, ...]
    drop_nonfinite: bool = False


@dataclass(frozen=True)
class HeadPairResult:
    """What was measured: values (step, block, head, population) and their standard errors."""

    task: HeadPairTask
    box: xr.Dataset


def measure_head_pair(task: HeadPairTask) -> HeadPairResult:
    """Measure the queries and keys of one block, with one BLAS thread.

    Raises:
        NonFiniteRowsError: If rows hold NaN or infinity and are not to be dropped.
        StoreError: If activations are missing or damaged.
    """
    table = stored_table(task.queries.uri, task.queries.path, task.queries.snapshot)
    bounds = group_bounds(table)
    members = [_members(table, population) for population in task.populations]
    with one_blas_thread():
        queries, keys = (
            sum_heads(slab, members, bounds, drop_nonfinite=task.drop_nonfinite)
            for slab in (task.queries, task.keys)
        )
    cells = []
    for own, other, chosen in zip(queries, keys, members, strict=True):
        sizes = np.add.reduceat(chosen.astype(np.int64), bounds[:-1])
        cells.append(_values(task.metrics, own, other, sizes) | _counts(table, chosen))
    return HeadPairResult(task, _box(task, cells))


def _members(table: TokenTable, population: Population) -> Members:
    """Return which rows (token) belong to a population that tokens alone decide."""
    if population.expression is not None:
        table = table.choose(population.expression)
    content: Members = table.codes == CONTENT
    chosen = population.from_content or population.expression is not None
    return content if chosen else np.ones_like(content)


def _values(
    metrics: Sequence[Metric],
    queries: Sequence[HeadSums],
    keys: Sequence[HeadSums],
    sizes: npt.NDArray[np.int64],
) -> dict[str, Floats]:
    """Finish metrics of one population (head), of all groups and without each in turn."""
    filled = np.flatnonzero(sizes).tolist()
    whole = _pair(queries, keys)
    left = []
    for group in filled if len(filled) > 1 else ():
        others = [other for other in filled if other != group]
        left.append(_pair([queries[i] for i in others], [keys[i] for i in others]))
    values = {}
    for metric in metrics:
        total = np.asarray(metric.function(whole), np.float64)
        without = [np.asarray(metric.function(one), np.float64) for one in left]
        values[metric.name] = total
        values[metric.name + STDERR] = standard_error(total, without, sizes[filled].tolist())
    return values


def _pair(queries: Sequence[HeadSums], keys: Sequence[HeadSums]) -> HeadPair:
    own = HeadSums.of(queries)
    return HeadPair(own, HeadSums.of(keys).shared_by(len(own.totals)))


def _counts(table: TokenTable, chosen: Members) -> dict[str, Floats]:
    """Return how many rows and sequences a population has."""
    assert table.sequence is not None
    found = (chosen.sum(), len(np.unique(table.sequence[chosen])))
    return {name: np.asarray(float(n)) for name, n in zip(COUNTS, found, strict=True)}


def _box(task: HeadPairTask, cells: Sequence[Mapping[str, Floats]]) -> xr.Dataset:
    """Label the values of each population as a box (step, block, head, population)."""
    assert task.queries.label is not None
    places = {STEP: [task.queries.step], BLOCK: [task.queries.label[1]]}
    heads = {HEAD: list(range(task.queries.shape[0]))}
    data = {}
    for name in cells[0]:
        values = np.stack([cell[name] for cell in cells], axis=-1)[None, None]
        about = _about(name, task.metrics)
        dims = (STEP, BLOCK, POPULATION) if name in COUNTS else (STEP, BLOCK, HEAD, POPULATION)
        data[result_name(name, task.suffix)] = xr.Variable(dims, values, about)
    populations = {POPULATION: [population.name for population in task.populations]}
    return xr.Dataset(data, places | heads | populations)


def _about(name: str, metrics: Sequence[Metric]) -> dict[str, str | int]:
    if name in COUNTS:
        return {"long_name": COUNTS[name], "units": "1"}
    return attributes(name, next(one for one in metrics if name.removesuffix(STDERR) == one.name))


def result_name(name: str, suffix: str) -> str:
    """Return the name under which a result about a pair of sites is stored."""
    error = STDERR if name.endswith(STDERR) else ""
    return name.removesuffix(STDERR) + suffix + error
