"""A reader written from docs/STORE_FORMAT.md alone: Icechunk, Zarr and CRC-32C, nothing of ours."""

from __future__ import annotations

import json

import google_crc32c
import icechunk
import numpy as np
import zarr

NEWEST = 3


def open_root(path, snapshot=None):
    """Return the root group of a store on a disk, as of one snapshot."""
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(path)))
    pinned = snapshot or repository.lookup_branch("main")
    session = repository.readonly_session(snapshot_id=pinned)
    root = zarr.open_group(session.store, mode="r")
    version = root.attrs.get("actlas_format")
    if version is None:
        raise ValueError("an Icechunk repository, but no store of activations")
    if version > NEWEST:
        raise ValueError(f"format {version} is newer than {NEWEST}")
    return root


def models(root):
    """Yield the path of every model's group, and of every stack's."""
    for corpus, group in root.groups():
        for name, model in group.groups():
            if "step" in model:
                yield f"{corpus}/{name}"
            for stack, child in model.groups():
                if stack != "metrics" and "step" in child:
                    yield f"{corpus}/{name}/{stack}"


def column(group, name, fill):
    """Return a per-step array; one that is not there reads as its fill value."""
    if name in group:
        return group[name][:]
    return np.full(group["step"].shape, fill)


def visible_slots(group):
    """Return the slots of complete steps by step, ascending."""
    steps, complete = group["step"][:], group["complete"][:]
    return {int(steps[slot]): int(slot) for slot in np.argsort(steps) if complete[slot]}


def depth_axis(group, site):
    """Return the labels along the layer or block axis of a site, None without one."""
    name = group[site].metadata.dimension_names[1]
    return group[name][:].tolist() if name in ("layer", "block") else None


def held_layers(group, slot, site):
    """Return the labels that a step holds of a site, None for a site without layers."""
    labels = depth_axis(group, site)
    if labels is None:
        return None
    said = column(group, "site_layers", "")[slot] if group.attrs.get("layers_by_step") else ""
    return json.loads(str(said)).get(site, sorted(labels)) if said else sorted(labels)


def token_counts(group):
    """Return how many tokens each visible step has."""
    counts, axis = column(group, "n_tokens", 0), group["token_id"].shape[0]
    return {step: int(counts[slot]) or axis for step, slot in visible_slots(group).items()}


def read(group, step, site, label):
    """Return the rows of one layer that are shown, after a check of every chunk."""
    slot, array = visible_slots(group)[step], group[site]
    dims = array.metadata.dimension_names
    labels = depth_axis(group, site)
    place = (slot,) if labels is None else (slot, labels.index(label))
    axis = dims.index("token") - len(place)
    counts = token_counts(group)
    values = array[place].take(range(counts[step]), axis=axis)
    recorded = group[f"{site}_checksum"][place]
    rows = group.attrs["chunk_rows"]
    for number, first in enumerate(range(0, counts[step], rows)):
        part = values.take(range(first, min(first + rows, counts[step])), axis=axis)
        if google_crc32c.value(np.ascontiguousarray(part, "<f4").tobytes()) != recorded[number]:
            raise ValueError(f"chunk {number} of {site}, step {step}, layer {label} is damaged")
    return values.take(range(min(counts.values())), axis=axis)
