"""Opening a store as lazy, labelled xarray objects."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import xarray as xr

from .arrays import member
from .columns import Slots, complete_slots
from .lazy import Origin, StoredActivations, StoredColumn, StoredTable, lazy_variable
from .listing import ArrayNode, GroupNode, list_groups
from .repository import Repository
from .schema import (
    BLOCK,
    CORPUS_TOKEN,
    DEPTH_COORDINATES,
    LAYER,
    SITES,
    STEP,
    STEP_COORDINATES,
    TEXT,
    TOKEN,
    TOKEN_COORDINATES,
)
from .slab import snapshot_root

CHUNKS: Final = {TOKEN: -1}
"""One Dask chunk a step and layer: a chunk for each chunk on disk would cost a hundredfold."""

BOOKKEEPING: Final = frozenset({"complete", "reserved_at", "writer"})
"""Per-step arrays for writers; what readers see is complete."""


def open_store(
    uri: str | os.PathLike[str],
    *,
    snapshot: str | None = None,
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
        chunks: Dask chunks, by default one a step and layer with all tokens. With None the arrays
            are xarray's own lazy ones, which compose selections but read what is computed with.

    Returns:
        A node a corpus, below it a node a model, below that ``encoder`` and ``decoder`` for a
        model with two stacks.

    Raises:
        StoreNotFoundError: If there is no store.
        FormatVersionError: If the store was written in a newer format.
        StoreError: If there is no such snapshot.
    """
    repository = Repository.open(uri, read_only=True)
    pinned = snapshot or repository.snapshot_id()
    listing = list_groups(snapshot_root(repository.uri, pinned))
    nodes = {"/": xr.Dataset(attrs={**listing.attrs, "uri": repository.uri, "snapshot": pinned})}
    models = {
        node.path: node
        for corpus in listing.groups.values()
        for model in corpus.groups.values()
        for node in model.walk()
    }
    slots = dict(zip(models, _slots(repository.uri, pinned, models), strict=True))
    for name, corpus in listing.groups.items():
        nodes[name] = _corpus_dataset(Origin(repository.uri, pinned, name), corpus)
    for path, node in models.items():
        origin = Origin(repository.uri, pinned, path)
        nodes[path] = model_dataset(origin, node, slots[path], chunks)
    return xr.DataTree.from_dict(nodes)


def _slots(uri: str, snapshot: str, models: Mapping[str, GroupNode]) -> list[Slots]:
    sizes = [
        (path, node.arrays[STEP].shape[0] if STEP in node.arrays else 0)
        for path, node in models.items()
    ]
    return complete_slots(snapshot_root(uri, snapshot).store, sizes)


def model_dataset(
    origin: Origin, node: GroupNode, slots: Slots, chunks: Mapping[str, int] | None
) -> xr.Dataset:
    """Return the activations of one group with all of their coordinates, nothing of them read."""
    if STEP not in node.arrays:
        return xr.Dataset(attrs=dict(node.attrs))
    step = node.arrays[STEP]
    coords = {STEP: xr.Variable(STEP, slots.steps, dict(step.attrs))}
    for name in STEP_COORDINATES:
        if name in node.arrays and name != STEP and name not in BOOKKEEPING:
            column = StoredColumn(origin, STEP_COORDINATES[name], slots.slots, step.shape[0])
            coords[name] = lazy_variable(column, node.arrays[name], cached=True)
    for name in (*TOKEN_COORDINATES, *DEPTH_COORDINATES):
        if name in node.arrays:
            coords[name] = _coordinate(origin, node.arrays[name])
    arrays = {
        name: _site(origin, node.arrays[name], slots, chunks)
        for name in SITES
        if name in node.arrays
    }
    used = {STEP, LAYER, *(dim for variable in arrays.values() for dim in variable.dims)}
    shown = {name: v for name, v in coords.items() if used.issuperset(v.dims)}
    return xr.Dataset(arrays, shown, attrs=dict(node.attrs))


def _site(
    origin: Origin, node: ArrayNode, slots: Slots, chunks: Mapping[str, int] | None
) -> xr.Variable:
    array = StoredActivations(origin, node.name, slots.slots, node.shape[1:])
    variable = lazy_variable(array, node, cached=False)
    if chunks is None:
        return variable
    every = {STEP: 1, LAYER: 1, BLOCK: 1, **chunks}
    sizes = {dim: every.get(str(dim), -1) for dim in variable.dims}
    return variable.chunk(sizes, inline_array=True)


def _coordinate(origin: Origin, node: ArrayNode) -> xr.Variable:
    """Return a coordinate: an index is read at once, everything else when it is used."""
    if node.dims == (node.name,):
        group = snapshot_root(origin.uri, origin.snapshot)
        values = np.asarray(member(group, f"{origin.path}/{node.name}")[:])
        return xr.Variable(node.dims, values, dict(node.attrs))
    return stored_table(origin, node)


def _corpus_dataset(origin: Origin, node: GroupNode) -> xr.Dataset:
    variables = {
        name: stored_table(
            origin,
            replace(array, dims=tuple(CORPUS_TOKEN if d == TOKEN else d for d in array.dims)),
        )
        for name, array in node.arrays.items()
    }
    # The texts are named like their dimension, but make no index: that would read them all.
    plain = xr.Coordinates({TEXT: variables.pop(TEXT)} if TEXT in variables else {}, indexes={})
    return xr.Dataset(variables, plain, attrs=dict(node.attrs))


def stored_table(origin: Origin, node: ArrayNode) -> xr.Variable:
    """Return a whole small array, read when it is first used and kept."""
    orders = [np.arange(size) for size in node.shape]
    return lazy_variable(StoredTable(origin, node.name, node.dtype, orders), node, cached=True)
