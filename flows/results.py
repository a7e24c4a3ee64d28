"""Metric results out of the store, as those who ask on a command line want them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from analysis.errors import UnknownMetricError, UnknownPopulationError
from analysis.metrics import METRICS
from flows.measurement import find_targets
from store.errors import StoreError
from store.metrics import open_metrics
from store.repository import Repository
from store.schema import LAYER, METRICS_GROUP, POPULATION, STEP

Cell = str | int | float

STDERR = "_stderr"


@dataclass(frozen=True)
class Selection:
    """Which results are wanted; None for all.

    Attributes:
        corpus: Name of a corpus.
        models: Ids of models.
        steps: Training steps.
        layers: Layers.
    """

    corpus: str | None = None
    models: Sequence[str] | None = None
    steps: Sequence[int] | None = None
    layers: Sequence[int] | None = None


def open_results(store_uri: str, metric: str, selection: Selection) -> dict[str, xr.Dataset]:
    """Open the results of one metric, lazily.

    Args:
        store_uri: The store.
        metric: Name of a metric.
        selection: Which results.

    Returns:
        For each corpus that has some: the results (model, step, layer, population, ...).

    Raises:
        UnknownMetricError: If there is no such metric.
        UnknownNameError: If there is no such corpus, model, step or layer.
        StoreError: If the metric has not been computed.
    """
    if metric not in METRICS:
        raise UnknownMetricError(metric, METRICS)
    repository = Repository.open(store_uri, read_only=True)
    targets = find_targets(
        repository,
        corpus=selection.corpus,
        models=selection.models,
        steps=selection.steps,
        layers=selection.layers,
    )
    root = repository.read()
    measured = [t for t in targets if f"{t.model.path}/{METRICS_GROUP}/{metric}" in root]
    if not measured:
        raise StoreError(
            f"{metric} has not been computed for anything chosen in {store_uri}:"
            f" run `actlas compute {metric}` first"
        )
    results = {}
    for corpus in dict.fromkeys(target.model.corpus for target in measured):
        own = [target for target in measured if target.model.corpus == corpus]
        models = list(dict.fromkeys(target.model.model for target in own))
        found = open_metrics(store_uri, corpus=corpus, models=models)
        results[corpus] = found.sel(
            {
                STEP: _among(found, STEP, [step for target in own for step in target.steps]),
                LAYER: _among(found, LAYER, [layer for target in own for layer in target.layers]),
            }
        )
    return results


def metric_table(
    results: dict[str, xr.Dataset], metric: str, population: str
) -> list[dict[str, Cell]]:
    """Return the values of a metric, one row each.

    Args:
        results: What :func:`open_results` found.
        metric: Name of the metric.
        population: Name of a population.

    Returns:
        Rows of corpus, model, step, layer, further dimensions, value and stderr.

    Raises:
        UnknownPopulationError: If none of the results have the population.
    """
    known = sorted({str(name) for found in results.values() for name in found[POPULATION].values})
    if population not in known:
        raise UnknownPopulationError(population, known)
    rows: list[dict[str, Cell]] = []
    for corpus, found in results.items():
        if population not in found[POPULATION].values:
            continue
        chosen = found.sel({POPULATION: population}, drop=True)
        values = chosen[metric]
        errors = chosen.get(metric + STDERR, xr.full_like(values, np.nan))
        frame = xr.Dataset({"value": values.drop_vars("relative_depth", errors="ignore")})
        frame["stderr"] = errors.drop_vars("relative_depth", errors="ignore")
        table = frame.to_dataframe(dim_order=list(values.dims)).dropna(subset="value")
        rows += [
            {"corpus": corpus, **{str(name): cell for name, cell in record.items()}}
            for record in table.reset_index().to_dict("records")
        ]
    return rows


def _among(found: xr.Dataset, dim: str, wanted: Sequence[int]) -> list[int]:
    """Return the labels along a dimension that are wanted, in the order of the results."""
    return [int(label) for label in found[dim].values if int(label) in set(wanted)]
