"""Metrics of nearest neighbours over a sample of rows, with standard errors from its parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from analysis.errors import NonFiniteRowsError
from analysis.metrics.intrinsic_dimension import DECIMATIONS
from analysis.metrics.metric import STDERR, Metric
from analysis.neighbors import nearest_neighbors
from analysis.populations import CONTENT, OUTLIER_FACTOR, Population, TokenTable
from analysis.row_kernels import measure_norms
from analysis.rows import Indices, Rows
from analysis.subsamples import decimate, subsample_errors
from store.schema import DECIMATION

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Neighborhood:
    """Values of neighbour metrics over one sample of rows.

    Attributes:
        values: Value of each metric, by name.
        errors: Its standard error, in the same shape; empty where none was wanted.
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


@dataclass(frozen=True)
class Sample:
    """Some rows of a layer.

    Attributes:
        rows: The rows (token, dim).
        sequence: Number of the sequence of each (token), None for independent rows.
    """

    rows: Rows
    sequence: Indices | None


def choose_rows(
    sample: Sample, population: Population, median: float, *, drop_nonfinite: bool
) -> Sample:
    """Return the rows of a sample of content, or of all rows, that are in a population.

    Args:
        sample: Rows of content, or of all rows.
        population: The population.
        median: Median norm of content of the layer; needed for typical rows.
        drop_nonfinite: Whether rows with NaN or infinity are left out, instead of refused.

    Raises:
        NonFiniteRowsError: If there are such rows and they are not to be dropped.
    """
    rows = sample.rows
    norms = np.empty(len(rows))
    measure_norms(rows, norms)
    chosen = np.isfinite(norms)
    if not drop_nonfinite and not chosen.all():
        raise NonFiniteRowsError(
            f"{(~chosen).sum()} of {len(rows)} sampled rows hold NaN or infinity; expected finite"
            " activations. Such rows are left out only for a step that was stored with them"
        )
    if population.typical:
        chosen &= norms <= OUTLIER_FACTOR * median
    if population.unit:
        chosen &= norms > 0
    if not population.unit and chosen.all():
        return sample
    sequence = None if sample.sequence is None else sample.sequence[chosen]
    values: Rows = rows[chosen]
    if population.unit:
        values = (values / norms[chosen, None]).astype(rows.dtype)
    return Sample(values, sequence)


def measure_neighborhood(
    sample: Sample,
    metrics: Sequence[Metric],
    *,
    seed: int,
    errors: bool,
    exclude_own_sequence: bool = False,
    threads: int = 1,
) -> Neighborhood:
    """Compute neighbour metrics of a sample of rows.

    A metric with the dimension ``decimation`` is computed of all rows, and as a mean over disjoint
    subsamples of a half, a fourth and an eighth of them.

    Args:
        sample: Finite rows.
        metrics: Metrics that need neighbours.
        seed: Seed of the division into parts.
        errors: Whether standard errors are wanted.
        exclude_own_sequence: Whether neighbours are sought in other sequences only.
        threads: Threads of the search.
    """
    sequences = sample.sequence if exclude_own_sequence else None
    k = max(metric.k for metric in metrics)
    neighbors = nearest_neighbors(sample.rows, k, groups=sequences, threads=threads, minimum=0)
    values = {metric.name: np.asarray(metric.function(neighbors), np.float64) for metric in metrics}
    kept, n_duplicates = neighbors.kept, neighbors.n_duplicates
    del neighbors
    rows = sample.rows if n_duplicates == 0 else sample.rows[kept]
    spread = {}
    if errors:
        spread = subsample_errors(
            rows,
            metrics,
            sequences=None if sample.sequence is None else sample.sequence[kept],
            exclude_own_sequence=exclude_own_sequence,
            seed=seed,
            threads=threads,
        )
    decimated = [metric for metric in metrics if DECIMATION in metric.dims]
    if decimated:
        levels = decimate(
            rows,
            [replace(metric, dims=metric.dims[1:]) for metric in decimated],
            factors=DECIMATIONS[1:],
            groups=None if sequences is None else sequences[kept],
            seed=seed,
            threads=threads,
        )
        for metric in decimated:
            _prepend(values, metric.name, levels[metric.name].values)
            if errors:
                _prepend(spread, metric.name, levels[metric.name + STDERR].values)
    return Neighborhood(values, spread, len(kept), n_duplicates)


def _prepend(found: dict[str, Floats], name: str, others: Floats) -> None:
    """Put the value of all rows before those of fewer (decimation, ...)."""
    found[name] = np.concatenate([found[name][None], others])
