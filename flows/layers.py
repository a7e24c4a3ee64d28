"""Which layers of which sites a step lacks, and blocks of rows narrowed to those."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from flows.job import DEFAULT_SITES, CaptureOptions
from store.held_layers import SiteLayers
from store.schema import LAYER, depth_dimension

if TYPE_CHECKING:
    from flows.capture.blocks import RowBlock
    from store.catalogue import HeldStep
    from store.write import StepWriter

Layers: TypeAlias = tuple[int, ...] | None
"""Layers, and blocks by the layers they give; None for all of a model."""


def lacking(held: HeldStep, options: CaptureOptions) -> dict[str, tuple[int, ...]]:
    """Return what a stored step lacks of what is asked for: sites, and layers or blocks of them.

    Args:
        held: The step.
        options: What is asked for. Where no sites are named, those that are stored by default
            are meant, as far as the model has them; of a model of which it was not recorded
            what it has, the residual stream and what the step has.

    Returns:
        Site to its missing layers or blocks, nothing for a site without either; no site that is
        there with all that is asked for.
    """
    recorded = held.default_sites or {DEFAULT_SITES[0], *held.sites}
    sites = options.sites or tuple(site for site in DEFAULT_SITES if site in recorded)
    every = range(held.n_blocks + 1) if options.layers is None else options.layers
    left: dict[str, tuple[int, ...]] = {}
    for site in sites:
        labels = set(_labels(site, every)).difference(held.layers.get(site, ()))
        if labels or site not in held.sites:
            left[site] = tuple(sorted(labels))
    return left


def layers_of(steps: Iterable[HeldStep]) -> Layers:
    """Return the layers that steps hold of any site, None if they hold all there are."""
    steps = list(steps)
    if all(_is_whole(step.layers, step.n_blocks) for step in steps):
        return None
    return tuple(sorted({n for step in steps for own in step.layers.values() for n in own}))


def layers_to_run(layers: SiteLayers, n_blocks: int) -> Layers:
    """Return at which layers a model is to be tapped to give some layers of each site.

    Args:
        layers: What is wanted of each site.
        n_blocks: Number of blocks of the stack.
    """
    if _is_whole(layers, n_blocks):
        return None
    return tuple(sorted({number for own in layers.values() for number in own}))


def narrowed(
    blocks: Iterable[RowBlock], writers: Sequence[StepWriter], ran: Sequence[Layers]
) -> Iterator[RowBlock]:
    """Leave out of blocks of rows the layers that are not to be written.

    Args:
        blocks: Blocks as the model gives them.
        writers: Writer of each stack that is captured.
        ran: At which layers each was tapped.
    """
    for block in blocks:
        tapped = ran[block.part]
        narrow = block if tapped is None else _narrow(block, writers[block.part].layers, tapped)
        if narrow.values:
            yield narrow
        # They are to be gone once they are written, not once the next ones are there.
        del block, narrow


def _narrow(block: RowBlock, wanted: SiteLayers, tapped: Sequence[int]) -> RowBlock:
    """Return what is wanted of a block, which may begin at another depth than the first."""
    depth = block.depth
    values: dict[str, npt.NDArray[np.float32]] = {}
    for site, rows in block.values.items():
        given, labels = _labels(site, tapped), list(wanted.get(site, ()))
        if not labels or given == labels:
            values[site] = rows
            continue
        own = given[block.depth : block.depth + len(rows)]
        kept = [number for number, label in enumerate(own) if label in labels]
        if kept:
            values[site] = rows[kept]
            depth = labels.index(own[kept[0]])
    return replace(block, values=values, depth=depth)


def of_layers(
    site: str, rows: npt.NDArray[np.float32], wanted: SiteLayers, tapped: Layers
) -> npt.NDArray[np.float32]:
    """Return the rows of a site at the layers that are wanted, without a copy if those are all.

    Args:
        site: Name of the site.
        rows: Its dimensions but step, at the layers that were tapped.
        wanted: What is wanted of each site.
        tapped: At which layers the model was tapped.
    """
    if tapped is None or site not in wanted:
        return rows
    given, labels = _labels(site, tapped), list(wanted[site])
    return rows if given == labels else rows[[given.index(label) for label in labels]]


def _labels(site: str, layers: Iterable[int]) -> list[int]:
    """Return the labels that a site has at layers: none without a depth, and no block 0."""
    dim = depth_dimension(site)
    return [] if dim is None else sorted(n for n in layers if dim == LAYER or n > 0)


def _is_whole(layers: SiteLayers, n_blocks: int) -> bool:
    every = range(n_blocks + 1)
    return all(list(own) == _labels(site, every) for site, own in layers.items())
