"""How neighbour estimates vary: standard errors and decimation, from disjoint subsamples.

Two things move such an estimate: which sequences were drawn, told by the spread over subsamples
of whole sequences; and how many rows, since every estimator reads another scale of the data with
each n, told by the means over subsamples of n/2, n/4, ... rows drawn at random.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import xarray as xr

from analysis.metrics.metric import STDERR, FloatArray, Metric
from analysis.neighbors import nearest_neighbors
from store.schema import DECIMATION

Rows = npt.NDArray[np.floating]
Indices = npt.NDArray[np.int64]


def disjoint_subsamples(
    n: int, parts: int, *, seed: int, sequences: npt.NDArray[np.integer] | None = None
) -> list[Indices]:
    """Deal rows out to subsamples of about equal size.

    Args:
        n: Number of rows.
        parts: Number of subsamples; fewer come out where there are fewer rows or sequences.
        seed: Of the order in which they are dealt.
        sequences: Sequence of each row (token), to keep whole; rows are dealt singly without.

    Returns:
        Row numbers of each subsample, in rising order; one empty subsample where there is no row.
    """
    units = np.arange(n) if sequences is None else np.unique(sequences, return_inverse=True)[1]
    sizes = np.bincount(units, minlength=1)
    order = np.random.default_rng(seed).permutation(len(sizes))
    middles = np.cumsum(sizes[order]) - sizes[order] / 2
    part = np.empty(len(sizes), np.int64)
    part[order] = np.minimum(middles * parts // max(n, 1), parts - 1)
    dealt = [np.flatnonzero(part[units] == number) for number in range(parts)]
    return [rows for rows in dealt if len(rows)] or dealt[:1]


def subsample_errors(
    rows: Rows,
    metrics: Sequence[Metric],
    *,
    sequences: npt.NDArray[np.integer] | None = None,
    exclude_own_sequence: bool = False,
    parts: int = 10,
    seed: int = 0,
    threads: int = 1,
) -> dict[str, FloatArray]:
    """Return the standard error of each neighbour metric over some rows.

    The standard deviation over subsamples of n/parts rows, divided by √parts: the variance of
    these estimates falls as 1/n. The search costs 1/parts of that over all rows.

    Args:
        rows: Rows (token, dim).
        metrics: Metrics that need neighbours.
        sequences: Sequence of each row (token), kept whole.
        exclude_own_sequence: Whether neighbours are sought in other sequences only.
        parts: Number of subsamples.
        seed: Of the deal.
        threads: Threads of each search.

    Returns:
        Standard error by metric name, in the shape of its value; NaN where some subsample is
        too small for the metric.
    """
    dealt = disjoint_subsamples(len(rows), parts, seed=seed, sequences=sequences)
    groups = sequences if exclude_own_sequence else None
    values = _evaluate(rows, dealt, metrics, groups, threads)
    return {name: _deviation(table) / np.sqrt(len(dealt)) for name, table in values.items()}


def decimate(
    rows: Rows,
    metrics: Sequence[Metric],
    *,
    factors: Sequence[int] = (1, 2, 4, 8),
    groups: npt.NDArray[np.integer] | None = None,
    seed: int = 0,
    threads: int = 1,
) -> xr.Dataset:
    """Evaluate neighbour metrics on n, n/2, n/4, ... rows.

    Args:
        rows: Rows (token, dim).
        metrics: Metrics that need neighbours.
        factors: Divisors of the number of rows.
        groups: Group of each row (token), within which no neighbours are sought.
        seed: Of the deal.
        threads: Threads of each search.

    Returns:
        By factor (decimation, ...): of each metric the mean over as many disjoint subsamples
        drawn at random, ``<metric>_stderr`` from their spread, and the mean number of rows ``n``.
    """
    levels = [_decimated(rows, metrics, factor, groups, seed, threads) for factor in factors]
    joined: xr.Dataset = xr.concat(levels, dim=DECIMATION)
    return joined.assign_coords({DECIMATION: list(factors)})


def _decimated(
    rows: Rows,
    metrics: Sequence[Metric],
    factor: int,
    groups: npt.NDArray[np.integer] | None,
    seed: int,
    threads: int,
) -> xr.Dataset:
    dealt = disjoint_subsamples(len(rows), factor, seed=seed)
    values = _evaluate(rows, dealt, metrics, groups, threads)
    level = xr.Dataset({"n": len(rows) / len(dealt)})
    for metric in metrics:
        table = values[metric.name]
        error = _deviation(table) / np.sqrt(len(dealt))
        level[metric.name] = (metric.dims, table.mean(axis=0))
        level[f"{metric.name}{STDERR}"] = (metric.dims, error)
    return level


def _evaluate(
    rows: Rows,
    dealt: Sequence[Indices],
    metrics: Sequence[Metric],
    groups: npt.NDArray[np.integer] | None,
    threads: int,
) -> dict[str, FloatArray]:
    """Return the value of every metric (subsample, ...) by its name."""
    furthest = max(metric.k for metric in metrics)
    values: dict[str, list[FloatArray]] = {metric.name: [] for metric in metrics}
    for part in dealt:
        found = nearest_neighbors(
            rows[part],
            furthest,
            minimum=0,
            groups=None if groups is None else groups[part],
            threads=threads,
        )
        for metric in metrics:
            values[metric.name].append(np.asarray(metric.function(found), np.float64))
    return {name: np.stack(several) for name, several in values.items()}


def _deviation(values: FloatArray) -> FloatArray:
    if len(values) < 2:
        return np.full(values.shape[1:], np.nan)
    deviation: FloatArray = values.std(axis=0, ddof=1)
    return deviation
