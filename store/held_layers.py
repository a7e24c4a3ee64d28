"""Which layers steps hold of each site, and room for more of them.

Layers lie on disk in the order in which they were first asked for, and never move. A step says in
``site_layers`` which of them it holds, unless it holds all; readers sort what they show.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import zarr
from zarr.abc.store import Store

from .arrays import add_step_coordinates, create_table, member, sites_of, step_capacity
from .cells import write_cells
from .columns import Column, read_columns
from .depths import relative_depth
from .errors import StoreError, UnknownNameError
from .format_number import require_format
from .identity import JSON, canonical
from .listing import GroupNode
from .schema import (
    BLOCK,
    CHECKSUM_SUFFIX,
    DEPTH_COORDINATES,
    LAYER,
    LAYER_CHOICE,
    LAYERED_FORMAT,
    LAYERS_BY_STEP,
    STEP,
    STEP_COORDINATES,
    depth_dimension,
    site_variable,
)

Labels: TypeAlias = tuple[int, ...]
SiteLayers: TypeAlias = Mapping[str, Labels]
"""Site to its layers, or blocks; sites without either are not in it."""

SITE_LAYERS = "site_layers"


def axis_labels(facts: Mapping[str, JSON]) -> dict[str, Labels]:
    """Return the labels of the layer and block axes of a model's group, as they lie on disk.

    Args:
        facts: Attributes of the group: they say what the axes are, so that no array is read.
    """
    layers = axis_layers(facts)
    return {LAYER: layers, BLOCK: tuple(number for number in layers if number > 0)}


def axis_layers(facts: Mapping[str, JSON]) -> Labels:
    """Return the layers of a group by its attributes: every one from 0, unless they name some."""
    named = facts.get(LAYER_CHOICE)
    if isinstance(named, Sequence):
        return tuple(number for number in named if isinstance(number, int))
    n_blocks = facts.get("n_blocks")
    if not isinstance(n_blocks, int) or n_blocks < 0:
        raise StoreError(f"attribute 'n_blocks' must be a whole number, got {n_blocks!r}")
    return tuple(range(n_blocks + 1))


def chosen(sites: Iterable[str], axes: Mapping[str, Labels], layers: Iterable[int]) -> SiteLayers:
    """Return what sites have at some layers: those of the residual stream, and blocks by theirs.

    Args:
        sites: Names of sites.
        axes: Labels of the axes.
        layers: Labels of layers.
    """
    wanted = set(layers)
    return {
        site: tuple(sorted(wanted.intersection(axes[dim])))
        for site in sites
        if (dim := depth_dimension(site)) is not None
    }


def every_layer(sites: Iterable[str], axes: Mapping[str, Labels]) -> SiteLayers:
    """Return what sites have if they have all."""
    return chosen(sites, axes, axes[LAYER])


def decoded(cell: str, sites: Iterable[str], axes: Mapping[str, Labels]) -> SiteLayers:
    """Return which layers a step holds of each of its sites.

    Args:
        cell: Value of ``site_layers`` of the step, empty where it holds every layer of the axes.
        sites: Sites that it holds.
        axes: Labels of the axes.
    """
    whole = every_layer(sites, axes)
    said = json.loads(cell) if cell else {}
    return {site: tuple(said.get(site, labels)) for site, labels in whole.items()}


def encoded(held: SiteLayers, axes: Mapping[str, Labels]) -> str:
    """Return the value of ``site_layers`` for a step: only sites are named that lack something."""
    whole = every_layer(held, axes)
    partly = {site: sorted(own) for site, own in held.items() if set(own) != set(whole[site])}
    return canonical(partly) if partly else ""


def united(one: SiteLayers, other: SiteLayers) -> SiteLayers:
    """Return what either has of each site."""
    return {
        site: tuple(sorted({*one.get(site, ()), *other.get(site, ())})) for site in {**one, **other}
    }


def without(one: SiteLayers, other: SiteLayers) -> SiteLayers:
    """Return what one has of each site, and another has not; only sites with something left."""
    left = {
        site: tuple(n for n in own if n not in other.get(site, ())) for site, own in one.items()
    }
    return {site: labels for site, labels in left.items() if labels}


def require_layers(group: zarr.Group, layers: Iterable[int]) -> None:
    """Make sure that a model's group has room for layers.

    Raises:
        UnknownNameError: Otherwise.
    """
    labels = axis_labels(group.attrs.asdict())[LAYER]
    for layer in layers:
        if layer not in labels:
            raise UnknownNameError("layer", layer, labels, group.path)


def held_by_slot(
    store: Store, path: str, capacity: int, axes: Mapping[str, Labels]
) -> list[SiteLayers]:
    """Return which layers each slot of a model's group holds of each of its sites.

    Args:
        store: The Zarr store of a snapshot.
        path: Path of the model's group.
        capacity: Number of its slots.
        axes: Labels of its axes.
    """
    names = ("sites", SITE_LAYERS)
    columns = [Column(path, STEP_COORDINATES[name], capacity) for name in names]
    cells = zip(*read_columns(store, columns), strict=True)
    return [decoded(str(cell), str(sites).split(), axes) for sites, cell in cells]


def shown_layers(store: Store, node: GroupNode, slots: Iterable[int]) -> tuple[int, ...]:
    """Return the layers that are shown of a model's group, ascending: any that a step holds.

    Args:
        store: The Zarr store of a snapshot.
        node: The model's group.
        slots: Slots of its complete steps.
    """
    axes = axis_labels(node.attrs)
    if not node.attrs.get(LAYERS_BY_STEP):
        return tuple(sorted(axes[LAYER]))
    held = held_by_slot(store, node.path, node.arrays[STEP].shape[0], axes)
    return tuple(sorted({n for slot in slots for own in held[slot].values() for n in own}))


def depth_mask(held: Sequence[SiteLayers], site: str, labels: Labels) -> npt.NDArray[np.bool_]:
    """Return which slots hold which layers of a site (slot, layer or block on disk)."""
    return np.array([np.isin(labels, own.get(site, ())) for own in held], dtype=bool)


def widen(root: zarr.Group, group: zarr.Group, layers: Sequence[int]) -> None:
    """Make room for layers that a model's group does not have, after those that it has.

    No step has them yet, and each says from now on which it has.

    Args:
        root: The root group, in a transaction.
        group: The model's group.
        layers: Layers that a step is to have.
    """
    before = axis_labels(group.attrs.asdict())
    new = [layer for layer in sorted(layers) if layer not in before[LAYER]]
    if new:
        add_step_coordinates(group)
        _record(group, before)
        _lengthen_axes(group, [*before[LAYER], *new])
        hold_by_step(root, group)


def hold_by_step(root: zarr.Group, group: zarr.Group) -> None:
    """Note that steps of a model's group do not all hold all of its layers.

    Args:
        root: The root group, in a transaction.
        group: The model's group.
    """
    if not group.attrs.get(LAYERS_BY_STEP):
        group.attrs[LAYERS_BY_STEP] = True
        require_format(root, LAYERED_FORMAT)


def _record(group: zarr.Group, axes: Mapping[str, Labels]) -> None:
    """Write down which layers the steps have that hold all there are so far."""
    capacity = step_capacity(group)
    columns = [Column(group.path, STEP_COORDINATES[name], capacity) for name in (STEP, "complete")]
    steps, complete = read_columns(group.store, columns)
    held = held_by_slot(group.store, group.path, capacity, axes)
    for slot in np.flatnonzero(complete.astype(bool) & (steps.astype(np.int64) >= 0)).tolist():
        if held[slot]:
            named = {site: list(labels) for site, labels in held[slot].items()}
            write_cells(group, slot, {SITE_LAYERS: canonical(named)})


def _lengthen_axes(group: zarr.Group, layers: Sequence[int]) -> None:
    numbers = np.array(layers, dtype=np.int64)
    facts: Mapping[str, JSON] = group.attrs.asdict()
    tables = {
        LAYER: numbers,
        BLOCK: numbers[numbers > 0],
        "relative_depth": relative_depth(facts, numbers),
    }
    for name, values in tables.items():
        del group[name]
        create_table(group, DEPTH_COORDINATES[name], values)
    for site in sites_of(group):
        dim = depth_dimension(site)
        if dim is not None:
            _resize(group, site, site_variable(site).dims.index(dim), len(tables[dim]))
    group.attrs[LAYER_CHOICE] = list(layers)


def _resize(group: zarr.Group, site: str, axis: int, size: int) -> None:
    for name in (site, site + CHECKSUM_SUFFIX):
        array = member(group, name)
        array.resize((*array.shape[:axis], size, *array.shape[axis + 1 :]))
