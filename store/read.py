"""Opening a store as lazy, labelled xarray objects."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

import numpy as np
import xarray as xr

from .history import find_snapshot
from .labels import token_labels
from .lazy import Origin, StoredTable, lazy_variable
from .listing import ArrayNode, GroupNode, list_groups
from .open_model import OpenModel, open_models
from .pinned import snapshot_root
from .repository import Repository
from .schema import (
    BLOCK,
    CORPUS_TOKEN,
    DEPTH_COORDINATES,
    LAYER,
    PLACE_COORDINATES,
    STEP,
    STEP_COORDINATES,
    TEXT,
    TOKEN,
    TOKEN_COORDINATES,
    sites_among,
)

CHUNKS: Final = {TOKEN: -1}
"""One Dask chunk a step and layer: a chunk for each chunk on disk would cost a hundredfold."""

BOOKKEEPING: Final = frozenset({"complete", "reserved_at", "rewritten_at", "writer"})
"""Per-step arrays for writers; what readers see is complete."""


def open_store(
    uri: str | os.PathLike[str],
    *,
    snapshot: str | None = None,
    tag: str | None = None,
    as_of: datetime | str | None = None,
    chunks: Mapping[str, int] | None = CHUNKS,
) -> xr.DataTree:
    """Open a store without reading any activation.

    ``tree["shakespeare/tiny-neox"].residual.sel(step=512, layer=3)`` is the array (token, dim) of
    one layer of one step, and ``tree["shakespeare"].text`` the texts. Only complete steps appear,
    in ascending order. Selecting narrows what is read to the chunks on disk that hold it; select
    in one call, since Dask reads a whole layer for a selection from a selection.

    Args:
        uri: Where the store is: a path, or ``s3://`` and so on.
        snapshot: Id of the snapshot to open, the newest by default.
        tag: Name of the tag to open instead.
        as_of: Time, in UTC unless it has a zone, whose newest snapshot to open instead.
        chunks: Dask chunks, by default one a step and layer with all tokens. With None the arrays
            are xarray's own lazy ones, which compose selections but read what is computed with.

    Returns:
        A node a corpus, below it a node a model, below that ``encoder`` and ``decoder`` for a
        model with two stacks, and so on. Where the corpus has labels, so have the tokens.

    Raises:
        StoreNotFoundError: If there is no store.
        FormatVersionError: If the store was written in a newer format.
        UnknownNameError: If there is no such tag.
        StoreError: If there is no such snapshot.
    """
    repository = Repository.open(uri, read_only=True)
    pinned = find_snapshot(repository, snapshot=snapshot, tag=tag, as_of=as_of)
    listing = list_groups(snapshot_root(repository.uri, pinned))
    nodes = {"/": xr.Dataset(attrs={**listing.attrs, "uri": repository.uri, "snapshot": pinned})}
    models = {
        node.path: node
        for corpus in listing.groups.values()
        for model in corpus.groups.values()
        for node in model.walk()
    }
    holding = [node for node in models.values() if STEP in node.arrays]
    opened = {m.node.path: m for m in open_models(repository.uri, pinned, holding)}
    for name, corpus in listing.groups.items():
        nodes[name] = _corpus_dataset(Origin(repository.uri, pinned, name), corpus)
    for path, node in models.items():
        held = opened.get(path)
        if held is None:
            nodes[path] = xr.Dataset(attrs=dict(node.attrs))
            continue
        corpus = listing.groups[path.split("/")[0]]
        labels = token_labels(held.origin, corpus, node)
        nodes[path] = model_dataset(held, chunks).assign_coords(labels)
    return xr.DataTree.from_dict(nodes)


def model_dataset(model: OpenModel, chunks: Mapping[str, int] | None) -> xr.Dataset:
    """Return the activations of one group with all of their coordinates, nothing of them read."""
    nodes = model.node.arrays
    sites = {name: _site(model, name, chunks) for name in sites_among(nodes)}
    labels = {STEP: model.slots.steps, **model.depths}
    coords = {
        name: xr.Variable(name, values, dict(nodes[name].attrs)) for name, values in labels.items()
    }
    for name in (*STEP_COORDINATES, *TOKEN_COORDINATES, *PLACE_COORDINATES, *DEPTH_COORDINATES):
        if name in nodes and name not in labels and name not in BOOKKEEPING:
            coords[name] = lazy_variable(model.array(name), nodes[name], cached=True)
    used = {dim for variable in sites.values() for dim in variable.dims} | {STEP, LAYER}
    shown = {name: variable for name, variable in coords.items() if used.issuperset(variable.dims)}
    return xr.Dataset(sites, shown, attrs=dict(model.node.attrs))


def _site(model: OpenModel, name: str, chunks: Mapping[str, int] | None) -> xr.Variable:
    variable = lazy_variable(model.array(name), model.node.arrays[name], cached=False)
    if chunks is None:
        return variable
    every = {STEP: 1, LAYER: 1, BLOCK: 1, **chunks}
    sizes = {dim: every.get(str(dim), -1) for dim in variable.dims}
    return variable.chunk(sizes, inline_array=True)


def _corpus_dataset(origin: Origin, node: GroupNode) -> xr.Dataset:
    variables = {
        name: _whole(
            origin,
            replace(array, dims=tuple(CORPUS_TOKEN if d == TOKEN else d for d in array.dims)),
        )
        for name, array in node.arrays.items()
    }
    # The texts are named like their dimension, but make no index: that would read them all.
    plain = xr.Coordinates({TEXT: variables.pop(TEXT)} if TEXT in variables else {}, indexes={})
    return xr.Dataset(variables, plain, attrs=dict(node.attrs))


def _whole(origin: Origin, node: ArrayNode) -> xr.Variable:
    orders = [np.arange(size) for size in node.shape]
    return lazy_variable(StoredTable(origin, node.name, node.dtype, orders), node, cached=True)
