"""Where the layers or blocks of a site lie in its array, and how they are taken out of it."""

from __future__ import annotations

from collections.abc import Sequence

import zarr
from zarr.core.sync import sync

from .arrays import member
from .held_layers import axis_labels
from .schema import CHECKSUM_SUFFIX, depth_dimension


def site_depths(
    group: zarr.Group, site: str, layers: Sequence[int] | None
) -> tuple[list[int], list[int]]:
    """Return the labels of layers or blocks, and where each lies; nothing for a site without any.

    Args:
        group: The model's group.
        site: Name of the array.
        layers: Labels, all of the array when None.
    """
    dim = depth_dimension(site)
    if dim is None:
        return [], []
    labels = axis_labels(group.attrs.asdict())[dim]
    wanted = list(labels if layers is None else layers)
    return wanted, [labels.index(label) for label in wanted]


def erase(group: zarr.Group, site: str, slot: int, layers: Sequence[int] | None = None) -> None:
    """Remove chunks of one step of a site from the present; the history keeps them.

    Args:
        group: The model's group.
        site: Name of the array.
        slot: Index on the step axis.
        layers: Layers or blocks to remove, all by default.
    """
    array, recorded = member(group, site), member(group, site + CHECKSUM_SUFFIX)
    if layers is None:
        sync(array.store.delete_dir(f"{array.path}/c/{slot}"))
        recorded[slot] = 0
        return
    for depth in site_depths(group, site, layers)[1]:
        sync(array.store.delete_dir(f"{array.path}/c/{slot}/{depth}"))
        recorded[slot, depth] = 0
