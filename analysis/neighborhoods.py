"""Metrics of nearest neighbours over a sample of rows, with standard errors from its parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.errors import NonFiniteRowsError, TooFewRowsError
from analysis.layer import LayerStatistics
from analysis.metrics.metric import Metric
from analysis.moment_kernels import measure_norms
from analysis.neighbors import Neighbors, nearest_neighbors
from analysis.populations import CONTENT, OUTLIER_FACTOR, Population, TokenTable
from analysis.rows import Indices, Rows

Floats = npt.NDArray[np.float64]

SUBSAMPLES: Final = 5
"""Disjoint parts of the sample, whose scatter gives the standard error."""


@dataclass(frozen=True)
class Neighborhood:
    """Values of neighbour metrics over one sample of rows.

    Attributes:
        values: Value of each metric, by name.
        errors: Its standard error, in the same shape.
        n: Distinct rows of the sample.
        n_duplicates: Rows of the sample dropped because they equal another one.
    """

    values: dict[str, Floats]
    errors: dict[str, Floats]
    n: int
    n_duplicates: int


def sample_tokens(table: TokenTable, size: int, seed: int, *, content: bool) -> Indices:
    """Draw rows at random from all sequences; the same ones for every layer and step.

    Args:
        table: The rows.
        size: Rows to draw; all of them where there are fewer.
        seed: Seed of the draw.
        content: Whether special tokens and first tokens are left out.

    Returns:
        Row numbers (token), rising.
    """
    eligible = np.flatnonzero(table.codes == CONTENT) if content else np.arange(table.n)
    if len(eligible) <= size:
        return eligible
    drawn = np.random.default_rng(seed).choice(eligible, size, replace=False)
    return np.sort(drawn).astype(np.int64)


def choose_rows(
    rows: Rows, population: Population, layer: LayerStatistics | None, *, drop_nonfinite: bool
) -> Rows:
    """Return the rows of a sample of content, or of all rows, that are in a population.

    Args:
        rows: Rows (token, dim).
        population: The population.
        layer: Statistics of the layer, which hold its median norm; needed for typical rows.
        drop_nonfinite: Whether rows with NaN or infinity are left out, instead of refused.

    Raises:
        NonFiniteRowsError: If there are such rows and they are not to be dropped.
    """
    norms = np.empty(len(rows))
    measure_norms(rows, norms)
    chosen = np.isfinite(norms)
    if not drop_nonfinite and not chosen.all():
        raise NonFiniteRowsError(
            f"{(~chosen).sum()} of {len(rows)} sampled rows hold NaN or infinity; expected finite"
            " activations. Such rows are left out only for a step that was stored with them"
        )
    if population.typical:
        assert layer is not None
        chosen &= norms <= OUTLIER_FACTOR * layer.median
    if not population.unit:
        return rows[chosen]
    chosen &= norms > 0
    units: Rows = (rows[chosen] / norms[chosen, None]).astype(rows.dtype)
    return units


def measure_neighborhood(
    rows: Rows,
    metrics: Sequence[Metric],
    *,
    seed: int,
    errors: bool,
    threads: int,
) -> Neighborhood:
    """Compute neighbour metrics of a sample of rows.

    Args:
        rows: Finite rows (token, dim).
        metrics: Metrics that need neighbours.
        seed: Seed of the division into parts.
        errors: Whether standard errors are wanted.
        threads: Threads of the search.
    """
    k = max(metric.k for metric in metrics)
    neighbors = _neighbors(rows, k, threads)
    distinct = rows[neighbors.kept]
    values = {metric.name: _value(metric, neighbors) for metric in metrics}
    spread = {name: np.full_like(value, np.nan) for name, value in values.items()}
    if errors:
        order = np.random.default_rng(seed).permutation(len(distinct))
        parts = [
            _neighbors(distinct[np.sort(part)], k, threads)
            for part in np.array_split(order, SUBSAMPLES)
        ]
        for metric in metrics:
            found = np.stack([_value(metric, part) for part in parts])
            spread[metric.name] = found.std(axis=0, ddof=1) / np.sqrt(SUBSAMPLES)
    return Neighborhood(values, spread, len(distinct), neighbors.n_duplicates)


def _neighbors(rows: Rows, k: int, threads: int) -> Neighbors:
    """Search as many as k neighbours; none at all where there are no two distinct rows."""
    try:
        return nearest_neighbors(rows, k, threads=threads, minimum=1)
    except TooFewRowsError:
        kept = np.arange(min(1, len(rows)))
        empty = np.empty((len(kept), 0))
        return Neighbors(empty, empty.astype(np.int64), kept, len(rows) - len(kept), 0)


def _value(metric: Metric, neighbors: Neighbors) -> Floats:
    return np.asarray(metric.function(neighbors), np.float64)
