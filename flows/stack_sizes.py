"""What the stacks of a loaded model give: bytes and chunks, before anything is run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flows.job import Job
from flows.loading import wanted_sites, with_rows
from store.held_layers import SiteLayers
from store.layout import chunk_rows, token_chunks

if TYPE_CHECKING:
    from flows.capture.tokens import Tokens
    from flows.capture.weights import LoadedModel

_VALUE_BYTES: Final = 4


@dataclass(frozen=True)
class StackSizes:
    """What is stored of one stack of a model.

    Attributes:
        path: Its group.
        new_rows: Rows that are stored.
        held_rows: Rows that are there already, and come before them.
        chunk_rows: Rows of a chunk.
        row_bytes: Bytes of a row of each site at one layer, as float32.
        depths: How many layers or blocks of each site are stored, 1 for a site without either.
    """

    path: str
    new_rows: int
    held_rows: int
    chunk_rows: int
    row_bytes: Mapping[str, int]
    depths: Mapping[str, int]

    @property
    def raw_bytes(self) -> int:
        """Bytes of the new rows before compression."""
        row = sum(self.depths[site] * size for site, size in self.row_bytes.items())
        return row * self.new_rows

    @property
    def chunks(self) -> int:
        """Chunks that are written, the one in which new rows begin included."""
        whole = token_chunks(self.held_rows + self.new_rows, self.chunk_rows)
        return (whole - self.held_rows // self.chunk_rows) * sum(self.depths.values())


@dataclass(frozen=True)
class Held:
    """What is stored of one stack, and what it lacks.

    Attributes:
        lacking: Sites to be stored, and their layers; no layers for sites without a depth.
        n_rows: Rows that are there and stay.
        chunk_rows: Rows of a chunk of its group.
    """

    lacking: SiteLayers
    n_rows: int
    chunk_rows: int


def stack_sizes(
    job: Job, stacks: Sequence[tuple[LoadedModel, Tokens]], held: Mapping[str, Held]
) -> list[StackSizes]:
    """Return what is stored of each stack of a model.

    Args:
        job: What is to be run.
        stacks: The model with each of its stacks chosen, and what that is shown.
        held: What is stored of them, by their paths; nothing of those that are not in it.

    Raises:
        UnknownSiteError: If a stack lacks a site or layer that is asked for.
        InputError: If no row is kept.
    """
    return [_sizes(job, loaded, tokens, held) for loaded, tokens in stacks]


def _sizes(job: Job, loaded: LoadedModel, tokens: Tokens, held: Mapping[str, Held]) -> StackSizes:
    from flows.capture.sites import site_shapes

    stack, sites = loaded.stack, wanted_sites(job, loaded)
    kept = with_rows(job, loaded, tokens)
    new_rows, keys = kept.n_rows, kept.longest
    path = "/".join(filter(None, (job.path, stack.name)))
    if path in held:
        own = held[path]
        lacking = [site for site in sites if site in own.lacking]
        shapes = site_shapes(stack, lacking, key_positions=keys)
        depths = {shape.name: len(own.lacking[shape.name]) or 1 for shape in shapes}
    else:
        own = Held({}, 0, chunk_rows(stack.width, new_rows))
        shapes = site_shapes(stack, sites, job.options.layers, keys)
        depths = {shape.name: shape.depth for shape in shapes}
    row_bytes = {shape.name: _VALUE_BYTES * math.prod(shape.features) for shape in shapes}
    return StackSizes(path, new_rows, own.n_rows, own.chunk_rows, row_bytes, depths)
