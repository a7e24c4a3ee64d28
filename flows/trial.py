"""Measuring what a checkpoint costs: a part of its corpus is run and stored, and thrown away."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from flows.running import (
    Job,
    load_job,
    refuse_if_cut,
    stack_tokens,
    store_parts,
    wanted_sites,
    with_rows,
)
from flows.stack_sizes import StackSizes, stack_sizes
from store.catalogue import catalogue
from store.corpora import CorpusSpec, create_corpus
from store.layout import chunk_rows
from store.repository import Repository

if TYPE_CHECKING:
    from flows.capture.tokens import Tokens
    from flows.capture.weights import LoadedModel
    from flows.outstanding import Outstanding

ENOUGH_SECONDS: Final = 4.0
"""A part that takes as long is taken as the measure of the whole."""

GROWTH: Final = 4
"""How much larger each part is than the one before."""


@dataclass(frozen=True)
class Trial:
    """What a part of the corpus cost.

    Attributes:
        warm_up_seconds: Time that only the first batch of a process takes.
        load_seconds: Time to load the model.
        step_seconds: Time of a step, however few its tokens are.
        position_seconds: Time of each position more that the model computes.
        row_bytes: Encoded bytes of a row, of all sites and layers.
        positions: Positions that it computes for the whole, padding included.
        sizes: What is stored of each stack for the whole.
        truncated: Sequences that are longer than the model takes, and are cut.
    """

    warm_up_seconds: float
    load_seconds: float
    step_seconds: float
    position_seconds: float
    row_bytes: float
    positions: int = 0
    sizes: tuple[StackSizes, ...] = ()
    truncated: int = 0

    @property
    def new_rows(self) -> int:
        """Rows that are stored for the whole, of all stacks."""
        return sum(one.new_rows for one in self.sizes)

    @property
    def seconds(self) -> float:
        """Time to load the model, and to run and store the whole."""
        return self.load_seconds + self.step_seconds + self.position_seconds * self.positions


@dataclass(frozen=True)
class _Part:
    positions: int
    seconds: float
    stored_bytes: int
    n_rows: int


def run_trial(left: Outstanding, *, enough_seconds: float = ENOUGH_SECONDS) -> Trial:
    """Load a model and store what it gives for ever larger parts of its corpus.

    Parts are sequences from all over the corpus, so that their lengths are those of the whole.
    They go the way of an ingest, into a store of their own beside the one that is meant, or in
    memory where that is none on a disk: the network of an object store is not measured.

    Args:
        left: What would be run, and over what.
        enough_seconds: A part that takes as long is the last.

    Raises:
        CaptureError: If the model cannot be read or run, or would have to cut a sequence and may
            not.
        StoreError: If there is no room even for a part.
    """
    from flows.capture.affordable import batch_size

    job, shown = left.job, left.shown
    started = time.perf_counter()
    loaded = load_job(job, shown)
    load_seconds = time.perf_counter() - started
    whole = [(one, stack_tokens(one, shown)) for one in loaded.each_stack()]
    tokens = whole[0][1]
    refuse_if_cut(job, shown, tokens)
    (filled,) = np.nonzero(tokens.lengths)
    with _scratch(job) as scratch:
        first = _run_part(scratch, _chosen(whole, filled[:1]), "warm-up")
        parts: list[_Part] = []
        batch = job.options.batch_tokens or batch_size(*_captured(job, whole[0][0]))
        for number, count in enumerate(_counts(batch * len(filled) // len(tokens), len(filled))):
            at = np.linspace(0, len(filled) - 1, count).round().astype(int)
            parts.append(_run_part(scratch, _chosen(whole, filled[at]), f"part-{number}"))
            # One part alone cannot tell what a step costs from what its tokens cost.
            if parts[-1].seconds >= enough_seconds * (1 if number else GROWTH):
                break
    return replace(
        _fitted(load_seconds, first, parts),
        positions=_positions(job, whole),
        sizes=tuple(stack_sizes(job, whole, left.held)),
        truncated=tokens.truncated,
    )


def _chosen(
    whole: Sequence[tuple[LoadedModel, Tokens]], sequences: npt.NDArray[np.integer]
) -> list[tuple[LoadedModel, Tokens]]:
    return [(one, tokens.select(sequences.tolist())) for one, tokens in whole]


def _counts(first: int, last: int) -> Iterator[int]:
    """Yield numbers of sequences, ever more of them."""
    count = max(1, first)
    while count < last:
        yield count
        count *= GROWTH
    yield last


def _run_part(scratch: Job, parts: list[tuple[LoadedModel, Tokens]], name: str) -> _Part:
    job = replace(scratch, checkpoint=replace(scratch.checkpoint, model=name))
    started = time.perf_counter()
    store_parts(job, parts)
    seconds = time.perf_counter() - started
    held = catalogue(job.repository, model=name)
    n_rows = sum(with_rows(job, loaded, tokens).n_rows for loaded, tokens in parts)
    stored_bytes = sum(model.stored_bytes for model in held)
    return _Part(_positions(job, parts), seconds, stored_bytes, n_rows)


def _positions(job: Job, parts: Sequence[tuple[LoadedModel, Tokens]]) -> int:
    """Return how many positions are computed: the less text, the more of them are padding.

    The stacks of a model of text are all shown the same tokens, which count once.
    """
    from flows.capture.affordable import batch_size, row_bytes, window_tokens
    from flows.capture.batches import padded_positions
    from flows.capture.items import ItemTokens
    from flows.capture.sites import site_shapes

    loaded, tokens = parts[0]
    if isinstance(tokens, ItemTokens):
        return sum(len(rows) for _, rows in parts)
    sites = wanted_sites(job, loaded)
    batch = job.options.batch_tokens or batch_size(*_captured(job, loaded))
    shapes = site_shapes(loaded.stack, sites, job.options.layers, tokens.longest)
    kept = with_rows(job, loaded, tokens)
    wanted = window_tokens(kept, row_bytes(shapes) * kept.n_rows, batch)
    window = max(wanted, int(tokens.lengths.max()))
    return padded_positions(kept, window, batch, chunk_rows(loaded.stack.width, kept.n_rows))


def _captured(
    job: Job, loaded: LoadedModel
) -> tuple[LoadedModel, Sequence[str], Sequence[int] | None]:
    return loaded, wanted_sites(job, loaded), job.options.layers


def _fitted(load_seconds: float, first: _Part, parts: list[_Part]) -> Trial:
    """Tell what a position costs from what a step costs, by the last two parts."""
    last = parts[-1]
    each = last.seconds / last.positions
    if len(parts) > 1 and last.positions > parts[-2].positions:
        slope = (last.seconds - parts[-2].seconds) / (last.positions - parts[-2].positions)
        each = min(max(slope, 0.0), each)
    step_seconds = last.seconds - each * last.positions
    warm_up_seconds = max(0.0, first.seconds - step_seconds - each * first.positions)
    row_bytes = last.stored_bytes / last.n_rows
    return Trial(warm_up_seconds, load_seconds, step_seconds, each, row_bytes)


@contextmanager
def _scratch(job: Job) -> Iterator[Job]:
    """Give a job that stores elsewhere, and delete what it stored."""
    corpus = job.corpus
    spec = CorpusSpec(corpus.name, corpus.modality, {}, corpus.seed, corpus.content_sha256)
    directory = job.repository.location.directory
    place = None if directory is None else directory.parent
    with tempfile.TemporaryDirectory(prefix=".actlas-plan-", dir=place) as folder:
        uri = f"{folder}/store" if place is not None else f"memory://{folder}"
        repository = Repository.create(uri)
        create_corpus(repository, spec, texts=["trial"], sources=["trial"], source_starts=[0])
        yield replace(job, repository=repository, options=replace(job.options, supersede=False))
