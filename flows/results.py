"""Metric results out of the store, as those who ask on a command line want them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import xarray as xr
import zarr

from analysis.boxes import SINK_RATES
from analysis.curve_values import select
from analysis.errors import UnknownMetricError, UnknownPopulationError
from analysis.head_work import HEAD_RESULTS, PAIRS
from analysis.metrics import METRICS
from analysis.metrics.heads import HEAD_METRICS
from analysis.metrics.values import VALUE_METRICS
from analysis.samples import sample_columns, samples_of
from flows.measurement import complete_steps, find_models, require_known
from store.errors import StoreError
from store.metrics import open_metrics
from store.repository import Repository
from store.schema import BLOCK, LAYER, METRICS_GROUP, POPULATION, SITES, SOURCE_SUFFIX, STEP

Cell = str | int | float

STDERR = "_stderr"

_SAMPLE = "_sample"


@dataclass(frozen=True)
class Selection:
    """Which results are wanted; None for all.

    Attributes:
        corpus: Name of a corpus.
        models: Ids of models.
        steps: Training steps.
        layers: Layers.
        picked: Labels along other dimensions of the metric, as text.
        snapshot: Id of the snapshot that is asked; the newest one for None.
    """

    corpus: str | None = None
    models: Sequence[str] | None = None
    steps: Sequence[int] | None = None
    layers: Sequence[int] | None = None
    picked: Mapping[str, Sequence[str]] = field(default_factory=dict)
    snapshot: str | None = None


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
        UnknownNameError: If there is no such corpus, model, step, layer or other label.
        StoreError: If the metric has not been computed.
    """
    repository = Repository.open(store_uri, read_only=True)
    held = find_models(
        repository,
        corpus=selection.corpus,
        models=selection.models,
        snapshot=selection.snapshot,
    )
    root = repository.read(selection.snapshot)
    results = {model.path: _stored(root, model.path) for model in held}
    measured = [model for model in held if metric in results[model.path]]
    if not measured and not is_result(metric):
        raise UnknownMetricError(metric, {*METRICS, *chain.from_iterable(results.values())})
    if not measured:
        raise StoreError(
            f"{metric} has not been computed for anything chosen in {store_uri}:"
            f" run `actlas compute {_asked_for(metric)}` first"
        )
    opened = {}
    for corpus in dict.fromkeys(model.corpus for model in measured):
        models = list(dict.fromkeys(model.model for model in measured if model.corpus == corpus))
        opened[corpus] = open_metrics(
            store_uri, corpus=corpus, models=models, snapshot=selection.snapshot
        )
    # Results outlive the activations that they came from, so their steps count as well.
    for dim, wanted, stored in (
        (STEP, selection.steps, {step for model in held for step in complete_steps(model)}),
        (LAYER, selection.layers, {layer for model in held for layer in model.layers}),
    ):
        labels = (
            int(label) for found in opened.values() if dim in found for label in found[dim].values
        )
        require_known(dim, wanted, stored.union(labels), held)
    return {
        corpus: select(_narrowed(found, selection), metric, selection.picked)
        for corpus, found in opened.items()
    }


def _stored(root: zarr.Group, path: str) -> set[str]:
    """Return the metrics of a model that have been computed, those of one's own among them."""
    found = root.get(f"{path}/{METRICS_GROUP}")
    names = set(found.array_keys()) if isinstance(found, zarr.Group) else set()
    return {name for name in names if name + SOURCE_SUFFIX in names}


def is_result(name: str) -> bool:
    """Return whether a name can be that of a result: a metric, or a metric of a site."""
    of_heads = {*HEAD_RESULTS, *(rate for _, rate, _ in SINK_RATES.values())}
    if name in METRICS or name in of_heads:
        return True
    known = {*METRICS, *(metric.name for metric in VALUE_METRICS)}
    return any(
        name.startswith(f"{site}_") and name.removeprefix(f"{site}_") in known for site in SITES
    )


def _asked_for(name: str) -> str:
    """Return what `actlas compute` is to be told for a result: a metric, or sites."""
    if name in METRICS:
        return name
    for suffix, sites in PAIRS.items():
        if name in {metric + suffix for metric in HEAD_METRICS}:
            return f"--sites {','.join(sites)}"
    site = next((site for site, (_, rate, _) in SINK_RATES.items() if rate == name), None)
    site = site or max((site for site in SITES if name.startswith(f"{site}_")), key=len)
    metric = name.removeprefix(f"{site}_")
    return f"{metric} --sites {site}" if metric in METRICS else f"--sites {site}"


def _narrowed(found: xr.Dataset, selection: Selection) -> xr.Dataset:
    """Return the results with the labels that are wanted, in the order they have."""
    chosen = ((STEP, selection.steps), (LAYER, selection.layers), (BLOCK, selection.layers))
    for dim, wanted in chosen:
        if wanted is not None and dim in found:
            found = found.sel({dim: [label for label in found[dim].values if label in wanted]})
    return found


def metric_table(
    results: dict[str, xr.Dataset], metric: str, population: str
) -> list[dict[str, Cell]]:
    """Return the values of a metric, one row each.

    Args:
        results: What :func:`open_results` found.
        metric: Name of the metric.
        population: Name of a population.

    Returns:
        Rows of corpus, model, step, layer, further dimensions, value and stderr; and of the
        settings of the sample, such as ``sample`` and ``seed``, for a metric of a sample.

    Raises:
        UnknownPopulationError: If none of the results have the population.
    """
    known = sorted({str(name) for found in results.values() for name in found[POPULATION].values})
    if population not in known:
        raise UnknownPopulationError(population, known)
    rows: list[dict[str, Cell]] = []
    samples: list[str] = []
    for corpus, found in results.items():
        if population not in found[POPULATION].values:
            continue
        chosen = found.assign({_SAMPLE: samples_of(found, metric)})
        chosen = chosen.sel({POPULATION: population}, drop=True)
        values = chosen[metric]
        errors = chosen.get(metric + STDERR, xr.full_like(values, np.nan))
        frame = xr.Dataset({"value": values.drop_vars("relative_depth", errors="ignore")})
        frame["stderr"] = errors.drop_vars("relative_depth", errors="ignore")
        frame[_SAMPLE] = chosen[_SAMPLE].drop_vars("relative_depth", errors="ignore")
        table = frame.to_dataframe(dim_order=list(values.dims)).dropna(subset="value")
        samples += table.pop(_SAMPLE).tolist()
        rows += [
            {"corpus": corpus, **{str(name): cell for name, cell in record.items()}}
            for record in table.reset_index().to_dict("records")
        ]
    return [row | own for row, own in zip(rows, sample_columns(samples), strict=True)]
