"""Metrics of activations that are at hand as labelled arrays."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import xarray as xr

from analysis.blas import one_blas_thread
from analysis.choose import MetricLike, make_plan
from analysis.errors import InputError
from analysis.evaluate import measure_layer
from analysis.inputs import CAUSAL, ArrayRows, read_table, width_dimension
from analysis.plan import SAMPLE_ROWS, Plan, Results
from analysis.populations import TokenTable
from analysis.results import assemble
from store.schema import TOKEN


def compute_metrics(
    data: xr.Dataset | xr.DataArray,
    metrics: Iterable[MetricLike] | None = None,
    *,
    populations: Sequence[str] | None = None,
    site: str = "residual",
    causal: bool | None = None,
    errors: bool = True,
    seed: int = 0,
    sample: int = SAMPLE_ROWS,
) -> xr.Dataset:
    """Compute metrics of every slice (token, dim) of an array of activations.

    Args:
        data: A DataArray with the dimensions ``token`` and ``dim`` (or ``head_dim``) and any
            others, or the Dataset of a model with one. Held by NumPy or lazily by Dask, it is
            read one slice after another. With the token coordinates ``special``, ``position``
            and ``sequence`` populations can be told apart; without, only ``all`` rows.
        metrics: Names of metrics, functions of ``Statistics`` of one's own, or their import names
            ``module:function``; None for all of ``METRICS``.
        populations: Names of populations; None for all that can be told apart, and ``content``
            alone for metrics of neighbours.
        site: Which variable of a Dataset to read.
        causal: Whether tokens attend only to earlier ones, so that the first token of each
            sequence is no content; by default the attribute ``causal``.
        errors: Whether to compute standard errors, by leaving out groups of sequences (of rows,
            taken for independent, without sequences).
        seed: Seed of the sample of rows that neighbours are sought in.
        sample: Number of those rows.

    Returns:
        For each metric a variable with the other dimensions of the array, ``population`` and
        those of the metric, its standard error ``<metric>_stderr``, and counts of rows.

    Raises:
        UnknownMetricError: If there is no metric of a name.
        UnknownPopulationError: If there is no population of a name.
        TooFewRowsError: If there are no rows.
        NonFiniteRowsError: If there are NaN or infinite activations.
        InputError: If the array is not one of activations.
    """
    array = _activations(data, site)
    width = width_dimension(array)
    outer = [name for name in array.dims if name not in (TOKEN, width)]
    table, order = read_table(array, causal if causal is not None else data.attrs.get(CAUSAL))
    sizes = {str(name): array.sizes[name] for name in outer}
    places = list(np.ndindex(*sizes.values()))
    threads = os.cpu_count() or 1
    plan = make_plan(
        metrics,
        populations,
        labelled=table.labelled,
        errors=errors,
        seed=seed,
        sample=sample,
        threads=threads if len(places) == 1 else 1,
    )
    ordered = array.transpose(*outer, TOKEN, width).variable
    slices = [ArrayRows(ordered[place], order) for place in places]
    cells = dict(zip(places, _measure_all(slices, table, plan, threads), strict=True))
    return assemble(cells, plan, sizes).assign_coords(_outer_coordinates(array, outer))


def _measure_all(
    slices: Sequence[ArrayRows], table: TokenTable, plan: Plan, threads: int
) -> list[Results]:
    """Measure slices side by side: each with one BLAS thread, a single one with all of them."""
    if len(slices) == 1:
        return [measure_layer(slices[0], table, plan)]
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda rows: measure_layer(rows, table, plan), slices))


def _activations(data: xr.Dataset | xr.DataArray, site: str) -> xr.DataArray:
    if isinstance(data, xr.DataArray):
        return data
    if not hasattr(data, "data_vars"):
        raise InputError(
            f"activations are a {type(data).__name__}: expected a DataArray or a Dataset, for"
            " example xarray.DataArray(values, dims=('token', 'dim'))"
        )
    if site not in data.data_vars:
        raise InputError(
            f"the dataset has no variable {site!r}, only {sorted(map(str, data.data_vars))};"
            " name one of them as site="
        )
    return data[site]


def _outer_coordinates(
    array: xr.DataArray, outer: Sequence[Hashable]
) -> dict[Hashable, xr.DataArray]:
    """Return the coordinates that describe slices, not tokens."""
    return {
        name: coordinate
        for name, coordinate in array.coords.items()
        if set(coordinate.dims) <= set(outer)
    }
