"""Reading metric results: of one model, or of all models over a corpus side by side."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr

from store.arrays import member
from store.join import Axis, JoinedArray, Label, Labelled, joined_axes, labels_along
from store.lazy import Origin, Positions, StoredTable, lazy_variable
from store.listing import ArrayNode, GroupNode, list_groups
from store.models import chosen_models, relative_depths
from store.pinned import model_group, snapshot_root
from store.repository import Repository
from store.schema import BLOCK, LAYER, METRICS_GROUP, MODEL, SOURCE_COLUMNS, SOURCE_SUFFIX, STEP

from .provenance import metrics_group
from .shared import joined_twins, twin_coordinates


@dataclass(frozen=True)
class StoredResults:
    """The metrics of one model, opened and not read.

    Attributes:
        origin: Their group.
        node: Its metadata.
        results: Its result variables: neither labels nor bookkeeping.
        labels: Labels of each axis, steps and other numbers ascending.
        orders: Place on disk of each label.
    """

    origin: Origin
    node: GroupNode
    results: dict[str, ArrayNode]
    labels: dict[str, list[Label]]
    orders: dict[str, Positions]

    def array(self, node: ArrayNode) -> StoredTable:
        """Return a result variable in the order of the labels."""
        orders = [self.orders[dim] for dim in node.dims]
        return StoredTable(self.origin, node.name, node.dtype, orders)

    def labelled(self, name: str) -> Labelled | None:
        """Return a result variable with its labels, None where this model has none of it."""
        node = self.results.get(name)
        if node is None:
            return None
        return Labelled(self.array(node), {dim: self.labels[dim] for dim in node.dims})


def stored_results(origin: Origin, node: GroupNode) -> StoredResults:
    """Open the metrics group of a model: its labels are read, nothing else."""
    group = snapshot_root(origin.uri, origin.snapshot)
    labels: dict[str, list[Label]] = {}
    orders: dict[str, Positions] = {}
    for name, array in node.arrays.items():
        if array.dims == (name,):
            values = np.asarray(member(group, f"{origin.path}/{name}")[:])
            numeric = values.dtype.kind in "if"
            order = np.argsort(values, kind="stable") if numeric else np.arange(len(values))
            orders[name] = order
            labels[name] = values[order].tolist()
    results = {
        name: array
        for name, array in node.arrays.items()
        if name not in labels and name not in SOURCE_COLUMNS and not name.endswith(SOURCE_SUFFIX)
    }
    return StoredResults(origin, node, results, labels, orders)


def read_metrics(
    repository: Repository, path: str, snapshot: str | None = None
) -> xr.Dataset | None:
    """Return the metric results of one model.

    Args:
        repository: The store.
        path: ``corpus/model`` or ``corpus/model/stack``.
        snapshot: Snapshot to read, the newest by default.

    Returns:
        The results (step, layer, population, ...), each read when it is first used; None when
        there are none. ``relative_depth`` (layer, or block where there are no layers), and
        ``same_weights`` and ``shared_weights`` (step), the other steps that share weights as text,
        are coordinates.

    Raises:
        UnknownNameError: If the model is not in the store.
    """
    pinned = snapshot or repository.snapshot_id()
    group = metrics_group(repository.uri, pinned, path)
    if group is None:
        return None
    stored = stored_results(Origin(repository.uri, pinned, group.path), list_groups(group))
    variables = {
        name: lazy_variable(stored.array(node), node, cached=True)
        for name, node in stored.results.items()
    }
    used = {dim for variable in variables.values() for dim in variable.dims}
    coords: dict[str, object] = {k: v for k, v in stored.labels.items() if k in used}
    if STEP in coords:
        coords |= twin_coordinates(stored.origin, stored.labels[STEP])
    dim = next((name for name in (LAYER, BLOCK) if name in coords), None)
    if dim is not None:
        model = GroupNode(path, model_group(repository.uri, pinned, path).attrs.asdict())
        coords["relative_depth"] = relative_depths([model], stored.labels[dim], dim)[0]
    return xr.Dataset(variables, coords, attrs=dict(stored.node.attrs))


def open_metrics(
    uri: str | os.PathLike[str],
    *,
    corpus: str,
    models: Sequence[str] | None = None,
    snapshot: str | None = None,
) -> xr.Dataset:
    """Open the metric results of several models side by side, without reading them.

    Args:
        uri: Where the store is.
        corpus: Name of the corpus.
        models: Ids of models, by default all that have metrics.
        snapshot: Snapshot to read, the newest by default.

    Returns:
        The results (model, step, layer, population, ...), joined by labels, NaN where a model has
        none. ``relative_depth`` (model, layer, or block where there are no layers), and
        ``same_weights`` and ``shared_weights`` (model, step), the other steps that share weights as
        text, are coordinates. Attributes are the latest written.

    Raises:
        StoreNotFoundError: If there is no store.
        UnknownNameError: If there is no such corpus, or no metrics of a model asked for.
    """
    repository = Repository.open(uri, read_only=True)
    pinned = snapshot or repository.snapshot_id()
    chosen = chosen_models(
        repository.uri, pinned, corpus, models, lambda node: METRICS_GROUP in node.groups
    )
    stored = []
    for node in chosen.values():
        metrics = node.groups[METRICS_GROUP]
        stored.append(stored_results(Origin(repository.uri, pinned, metrics.path), metrics))
    names = dict.fromkeys(name for one in stored for name in one.results)
    axes = joined_axes(one.labelled(name) for one in stored for name in names)
    variables = {name: _joined(name, stored, axes) for name in names}
    coords: dict[str, object] = {**axes, MODEL: list(chosen)}
    dim = next((name for name in (LAYER, BLOCK) if name in axes), None)
    if dim is not None:
        coords["relative_depth"] = relative_depths(chosen.values(), labels_along(axes, dim), dim)
    if STEP in axes:
        steps = [one.labels[STEP] for one in stored]
        coords |= joined_twins([one.origin for one in stored], steps, axes)
    attrs = {"corpus": corpus, "uri": repository.uri, "snapshot": pinned}
    return xr.Dataset(variables, coords, attrs=attrs)


def _joined(name: str, stored: Sequence[StoredResults], axes: Mapping[str, Axis]) -> xr.Variable:
    parts = [one.labelled(name) for one in stored]
    nodes = [one.results[name] for one in stored if name in one.results]
    dims = nodes[-1].dims
    own = {dim: axes[dim] for dim in dims}
    dtype = np.result_type(*(node.dtype for node in nodes))
    array = JoinedArray(parts, own, dtype, np.nan)
    return lazy_variable(array, replace(nodes[-1], dims=(MODEL, *dims)), cached=True)
