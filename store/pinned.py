"""What this process has opened of snapshots: each part once, since a snapshot never changes."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import zarr

from .arrays import member
from .chunks import ActivationArray
from .columns import Column, Slots, complete_slots, read_columns
from .errors import UnknownNameError
from .extent import Extent, group_extent
from .held_layers import SiteLayers, axis_labels, depth_mask, held_by_slot
from .location import locate
from .repository import Repository
from .schema import LAYERS_BY_STEP, METRICS_GROUP, STEP, STEP_COORDINATES, depth_dimension


@lru_cache(maxsize=8)
def snapshot_root(uri: str, snapshot: str) -> zarr.Group:
    """Return the root group of a snapshot, opened once in this process."""
    return Repository.open(uri, read_only=True).read(snapshot)


@lru_cache(maxsize=64)
def activation_array(uri: str, snapshot: str, path: str, site: str) -> ActivationArray:
    """Return a site's array of a snapshot, opened once in this process."""
    shown = model_extent(uri, snapshot, path).n_tokens
    group = model_group(uri, snapshot, path)
    return ActivationArray(group, site, shown, directory=locate(uri).directory)


@lru_cache(maxsize=64)
def model_extent(uri: str, snapshot: str, path: str) -> Extent:
    """Return how much of the token axis of a model is shown in a snapshot."""
    return group_extent(model_group(uri, snapshot, path))


@lru_cache(maxsize=64)
def model_slots(uri: str, snapshot: str, path: str) -> Slots:
    """Return the complete steps of a model's group."""
    group = model_group(uri, snapshot, path)
    (slots,) = complete_slots(group.store, [(path, member(group, STEP).shape[0])])
    return slots


@lru_cache(maxsize=64)
def site_slots(uri: str, snapshot: str, path: str, site: str) -> npt.NDArray[np.bool_]:
    """Return which slots of a model's group hold a site (slot,); some were added later."""
    group = model_group(uri, snapshot, path)
    size = member(group, STEP).shape[0]
    (stored,) = read_columns(group.store, [Column(path, STEP_COORDINATES["sites"], size)])
    return np.array([site in str(names).split() for names in stored], dtype=bool)


@lru_cache(maxsize=64)
def site_layers(uri: str, snapshot: str, path: str, site: str) -> npt.NDArray[np.bool_]:
    """Return which slots hold which layers or blocks of a site (slot, layer or block on disk).

    A site without layers has one column.
    """
    holds = site_slots(uri, snapshot, path, site)[:, np.newaxis]
    dim = depth_dimension(site)
    if dim is None:
        return holds
    labels = axis_labels(model_group(uri, snapshot, path).attrs.asdict())[dim]
    held = model_layers(uri, snapshot, path)
    if held is None:
        return np.repeat(holds, len(labels), axis=1)
    return holds & depth_mask(held, site, labels)


@lru_cache(maxsize=64)
def model_layers(uri: str, snapshot: str, path: str) -> list[SiteLayers] | None:
    """Return which layers each slot holds of each site, None where each holds all there are."""
    group = model_group(uri, snapshot, path)
    if not group.attrs.get(LAYERS_BY_STEP):
        return None
    size = member(group, STEP).shape[0]
    return held_by_slot(group.store, path, size, axis_labels(group.attrs.asdict()))


@lru_cache(maxsize=64)
def model_group(uri: str, snapshot: str, path: str) -> zarr.Group:
    """Return the group of a model, or of its stack.

    Raises:
        UnknownNameError: If the corpus, the model or the stack is not in the store.
    """
    group, where = snapshot_root(uri, snapshot), uri
    for kind, name in zip(("corpus", "model", "stack"), path.split("/"), strict=False):
        child = group.get(name)
        if not isinstance(child, zarr.Group) or name == METRICS_GROUP:
            known = [key for key in group.group_keys() if key != METRICS_GROUP]
            raise UnknownNameError(kind, name, known, where)
        group, where = child, f"{child.path} of {uri}"
    return group
