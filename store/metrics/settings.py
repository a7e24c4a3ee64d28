"""The settings that stored values were computed with, of models side by side."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import xarray as xr
import zarr

from store.arrays import member
from store.models import chosen_models
from store.repository import Repository
from store.schema import METRICS_GROUP, MODEL, SOURCE_SUFFIX

from .axes import dimension_names, read_labels
from .provenance import metrics_group


def open_settings(
    uri: str | os.PathLike[str],
    metrics: Sequence[str],
    *,
    corpus: str,
    models: Sequence[str] | None = None,
    snapshot: str | None = None,
) -> xr.Dataset:
    """Read which settings (sample, seed ...) the values of metrics were computed with.

    Args:
        uri: Where the store is.
        metrics: Names of metrics.
        corpus: Name of the corpus.
        models: Ids of models, by default all that have metrics.
        snapshot: Snapshot to read, the newest by default.

    Returns:
        For each of the metrics whose provenance is stored, the settings as canonical JSON
        (model, step, layer, population), empty where no value was ever computed.

    Raises:
        StoreNotFoundError: If there is no store.
        UnknownNameError: If there is no such corpus, or no metrics of a model asked for.
    """
    repository = Repository.open(uri, read_only=True)
    pinned = snapshot or repository.snapshot_id()
    chosen = chosen_models(
        repository.uri, pinned, corpus, models, lambda node: METRICS_GROUP in node.groups
    )
    parts: dict[str, list[xr.DataArray]] = {}
    for model, node in chosen.items():
        group = metrics_group(repository.uri, pinned, node.path)
        own = {} if group is None else _settings_of(group, metrics)
        for metric, found in own.items():
            parts.setdefault(metric, []).append(found.expand_dims({MODEL: [model]}))
    return xr.merge(
        [
            xr.concat(found, MODEL, join="outer", fill_value="").rename(metric)
            for metric, found in parts.items()
        ],
        join="outer",
        fill_value="",
        compat="no_conflicts",
    )


def read_settings(
    repository: Repository, path: str, metrics: Sequence[str], snapshot: str | None = None
) -> dict[str, xr.DataArray]:
    """Read which settings the values of metrics of one model were computed with.

    Args:
        repository: The store.
        path: ``corpus/model`` or ``corpus/model/stack``.
        metrics: Names of metrics.
        snapshot: Snapshot to read, the newest by default.

    Returns:
        For each of the metrics whose provenance is stored, the settings as canonical JSON
        (step, layer, population), empty where no value was ever computed.

    Raises:
        UnknownNameError: If the model is not in the store.
    """
    group = metrics_group(repository.uri, snapshot or repository.snapshot_id(), path)
    return {} if group is None else _settings_of(group, metrics)


def _settings_of(group: zarr.Group, metrics: Sequence[str]) -> dict[str, xr.DataArray]:
    """Return the settings of the values of one model's metrics (step, layer, population)."""
    held = [metric for metric in metrics if metric + SOURCE_SUFFIX in group]
    if not held:
        return {}
    # The last one stands for the row -1: never computed.
    settings = np.append(np.asarray(member(group, "source_settings")[:]).astype(object), "")
    arrays = {metric: member(group, metric + SOURCE_SUFFIX) for metric in held}
    labels = read_labels(group, arrays.values())
    return {
        metric: xr.DataArray(
            settings[np.asarray(array[:])],
            {dim: labels[dim].tolist() for dim in dimension_names(array)},
            dimension_names(array),
        )
        for metric, array in arrays.items()
    }
