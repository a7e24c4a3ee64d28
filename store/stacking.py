"""Several models as one labelled array."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import xarray as xr

from .errors import UnknownNameError
from .join import Axis, JoinedArray, joined_axes, labels_along
from .lazy import lazy_variable
from .models import chosen_models, relative_depths
from .open_model import OpenModel, open_models
from .repository import Repository
from .schema import BLOCK, LAYER, MODEL, STEP, TOKEN_COORDINATES, is_site, sites_among

FILLS: Final[Mapping[str, float | str]] = {"i": -1, "b": False, "f": np.nan, "O": ""}
"""What stands for a coordinate a model has not, by kind of dtype."""

STEP_FACTS: Final = ("revision", "weights_sha256", "source_dtype", "loss")
"""Per-step coordinates a cube carries, one value a model and step."""


def cube(
    uri: str | os.PathLike[str],
    *,
    corpus: str,
    models: Sequence[str] | None = None,
    site: str = "residual",
    snapshot: str | None = None,
) -> xr.DataArray:
    """Present several models' activations as one array, without reading any of them.

    Args:
        uri: Where the store is.
        corpus: Name of the corpus.
        models: Ids of models, by default all that hold the site.
        site: Name of the array.
        snapshot: Snapshot to read, the newest by default.

    Returns:
        A lazy array (model, step, layer, token, dim), or whatever dimensions the site has after
        ``model``; steps and layers are joined by label, tokens and dims by position, and what a
        model has not is NaN. One Dask chunk a model, step and layer. Token coordinates are
        (model, token), -1 past the last token of a model: models tokenize differently.

    Raises:
        StoreNotFoundError: If there is no store.
        UnknownNameError: If there is no such corpus or site, or a model asked for has none of it.
    """
    repository = Repository.open(uri, read_only=True)
    pinned = snapshot or repository.snapshot_id()
    chosen = chosen_models(repository.uri, pinned, corpus, models, lambda node: site in node.arrays)
    if not is_site(site) or not chosen:
        held = chosen_models(repository.uri, pinned, corpus, models, lambda node: bool(node.arrays))
        sites = sites_among(name for node in held.values() for name in node.arrays)
        raise UnknownNameError("site", site, sites, f"the models of {corpus} in {repository.uri}")
    opened = open_models(repository.uri, pinned, list(chosen.values()))
    axes = joined_axes(model.labelled(site) for model in opened)
    variable = _joined(opened, site, axes, cached=False)
    sizes = {dim: 1 if dim in (MODEL, STEP, LAYER, BLOCK) else -1 for dim in variable.dims}
    labels = {
        name: np.asarray(axis, dtype=np.int64)
        for name, axis in axes.items()
        if not isinstance(axis, int)
    }
    coords = {MODEL: list(chosen), **labels, **_coordinates(opened, axes)}
    attrs = {"corpus": corpus, "uri": repository.uri, "snapshot": pinned}
    lazy = variable.chunk(sizes, inline_array=True)
    return xr.DataArray(lazy, coords, name=site).assign_attrs(attrs)


def _coordinates(opened: Sequence[OpenModel], axes: Mapping[str, Axis]) -> dict[str, xr.Variable]:
    coords = {name: _joined(opened, name, axes) for name in (*STEP_FACTS, *TOKEN_COORDINATES)}
    if LAYER in axes:
        nodes = [model.node for model in opened]
        coords["relative_depth"] = relative_depths(nodes, labels_along(axes, LAYER))
    return coords


def _joined(
    opened: Sequence[OpenModel], name: str, axes: Mapping[str, Axis], *, cached: bool = True
) -> xr.Variable:
    """Return an array of every model, joined along the axes it has."""
    node = opened[0].node.arrays[name]
    own = {dim: axes[dim] for dim in node.dims}
    parts = [model.labelled(name) for model in opened]
    array = JoinedArray(parts, own, node.dtype, FILLS[node.dtype.kind])
    return lazy_variable(array, replace(node, dims=(MODEL, *node.dims)), cached=cached)
