"""A checkpoint's model run over a corpus, each of its stacks into a group of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from flows.capture.chosen import MEAN, choose_rows
from flows.capture.errors import CheckpointError, InputError
from flows.capture.rounding import FULL_PRECISION, Precision
from flows.capture.settling import file_states
from flows.capture.tokens import Tokens
from flows.group_facts import model_facts
from flows.inputs import corpus_inputs
from flows.job import DEFAULT_SITES, RIVAL_WAIT, CaptureOptions, Job
from flows.losses import TOKEN_LOSS, MeanLoss
from flows.streaming import continued, stream
from store.create import ArraySpec, create_model
from store.errors import NonFiniteError, StoreError, UnknownNameError
from store.identity import JSON
from store.request import AlreadyStored
from store.schema import (
    HEAD,
    HEAD_DIM,
    SITES,
    TOKEN,
    site_variable,
)
from store.unused import remove_unused_model
from store.write import StepWriter, reserve_step

if TYPE_CHECKING:
    from flows.capture.items import Items
    from flows.capture.rows import RowBlock
    from flows.capture.weights import LoadedModel

__all__ = [
    "DEFAULT_SITES",
    "RIVAL_WAIT",
    "CaptureOptions",
    "Job",
    "load_job",
    "run_job",
    "shown_tokens",
    "stack_tokens",
    "store_parts",
    "with_rows",
]

Progress: TypeAlias = "Callable[[int, int], None]"

CREATION_TRIES: Final = 3
"""How often a model's group is created if others, who fail, take it back each time."""

_RECORDED_VERSIONS: Final = ("actlas", "icechunk", "numpy", "torch", "transformers", "zarr")


def run_job(job: Job, progress: Progress | None = None) -> bool:
    """Run a model over a corpus and commit what each of its stacks gave.

    Args:
        job: What to run.
        progress: Called with the number of tokens just done, and of all.

    Returns:
        Whether anything was stored: another process may have been faster.
    """
    shown = corpus_inputs(job.corpus, job.checkpoint)
    if not job.options.truncate and isinstance(shown, Tokens) and shown.truncated:
        raise InputError(
            f"{shown.truncated} of {shown.n_sequences} sequences of {job.corpus.name} are longer "
            f"than the {shown.lengths.max()} tokens that {job.checkpoint.model} takes: cut the "
            "corpus into shorter ones, or let them be truncated"
        )
    loaded = load_job(job, shown)
    parts = [(one, stack_tokens(one, shown)) for one in loaded.each_stack()]
    return store_parts(job, parts, progress)


def store_parts(
    job: Job, parts: Sequence[tuple[LoadedModel, Tokens]], progress: Progress | None = None
) -> bool:
    """Commit what stacks of a loaded model give for tokens.

    Args:
        job: What to store.
        parts: The model with each of its stacks chosen, and what that is shown.
        progress: Called with the number of tokens just done, and of all.

    Returns:
        Whether anything was stored: another process may have been faster.
    """
    total = sum(len(tokens) for _, tokens in parts)
    report = None if progress is None else lambda done: progress(done, total)
    try:
        stored = [_store_stack(job, one, tokens, report) for one, tokens in parts]
    except BaseException:
        with suppress(StoreError):
            remove_unused_model(job.repository, job.path)
        raise
    return any(stored)


def load_job(job: Job, shown: Tokens | Items) -> LoadedModel:
    """Load the model of a job so that all sites asked for can be captured.

    Args:
        job: The job.
        shown: What the model is to be shown.

    Raises:
        CheckpointError: If it cannot be read, or has changed since it was digested.
    """
    # Here, not above: torch takes seconds to import, and what is stored needs none of it.
    from flows.capture.devices import dtype_named
    from flows.capture.weights import load_model

    loaded = load_model(
        job.checkpoint,
        device=job.options.device,
        dtype=dtype_named(job.options.dtype),
        attention="eager" if _needs_probabilities(job.options) else None,
        head=TOKEN_LOSS in (job.options.sites or ()),
        shown=None if isinstance(shown, Tokens) else shown.shapes(),
        blocks=job.options.blocks,
    )
    if file_states(job.checkpoint) != job.states:
        raise CheckpointError(
            f"{job.checkpoint.source} step {job.checkpoint.step} was written to while it was read,"
            " so that its digests may not be those of its weights; ingest it when it is whole"
        )
    return loaded


def stack_tokens(loaded: LoadedModel, shown: Tokens | Items) -> Tokens:
    """Return the tokens with which the chosen stack is run: rows, where items are shown."""
    if isinstance(shown, Tokens):
        return replace(shown, rate=loaded.stack.rate)
    return shown.tokens(loaded.stack.extent)


def with_rows(job: Job, loaded: LoadedModel, tokens: Tokens) -> Tokens:
    """Return tokens with the choice of rows that a job keeps of the chosen stack.

    Raises:
        InputError: If a site has no mean, or no row is left.
    """
    if job.options.rows.kind == MEAN and TOKEN_LOSS in (job.options.sites or ()):
        raise InputError(f"{TOKEN_LOSS} has no value for first tokens: keep it without a mean")
    return choose_rows(tokens, shown_tokens(loaded, tokens), job.options.rows)


def shown_tokens(loaded: LoadedModel, tokens: Tokens) -> Tokens:
    """Return the tokens that the rows of the chosen stack belong to."""
    start = loaded.stack.decoder_start
    return tokens if start is None else tokens.shifted(start)


def _store_stack(
    job: Job, loaded: LoadedModel, tokens: Tokens, progress: Callable[[int], None] | None
) -> bool:
    from flows.capture.forward import capture

    tokens = with_rows(job, loaded, tokens)
    writer = _reserve(job, loaded, tokens)
    if isinstance(writer, AlreadyStored):
        return False
    with writer:
        blocks: Iterable[RowBlock] = ()
        if writer.held_tokens < writer.n_tokens:
            first = int(np.searchsorted(tokens.row_offsets, writer.held_tokens))
            blocks = capture(
                loaded,
                tokens.select(range(first, tokens.n_sequences)) if first else tokens,
                writer.sites,
                block_rows=writer.chunk_rows,
                layers=job.options.layers,
                batch_tokens=job.options.batch_tokens,
                allow_nonfinite=True,  # the writer looks, in its own thread, and knows the step
                precision=job.options.precision,
                progress=progress,
            )
        loss = MeanLoss()
        blocks = loss.watching(blocks)
        if writer.held_tokens:
            blocks = continued(blocks, writer)
            if TOKEN_LOSS in writer.sites:
                loss.add(writer.held_rows(TOKEN_LOSS, whole=True))
        _stream(blocks, writer, job.options.precision)
        writer.commit(provenance=_provenance(job, tokens, loaded) | {"loss": loss.mean()})
    return True


def _reserve(job: Job, loaded: LoadedModel, tokens: Tokens) -> StepWriter | AlreadyStored:
    """Create what is missing of the group of a stack, and reserve the step in it."""
    path = "/".join(filter(None, (job.path, loaded.stack.name)))
    for tries_left in reversed(range(CREATION_TRIES)):
        sites = _create(job, loaded, tokens)
        try:
            return reserve_step(
                job.repository,
                path,
                job.checkpoint.step,
                identity=job.identity,
                sites=sites,
                supersede=job.options.supersede,
                rewrite=job.options.rewrite,
                grown_from=job.grown_from,
                allow_nonfinite=job.options.allow_nonfinite,
                wait=job.options.rival_wait,
            )
        except UnknownNameError:
            # Another writer failed, and took the group back before a step was in it.
            if not tries_left:
                raise
    raise AssertionError


def _stream(blocks: Iterable[RowBlock], writer: StepWriter, precision: Precision) -> None:
    try:
        stream(blocks, writer)
    except NonFiniteError as error:
        if precision != "float16":
            raise
        cause = " in float16, which ends at 65,504; bfloat16 reaches as far as float32"
        raise NonFiniteError(
            error.site, error.layer, error.count, error.where, cause=cause
        ) from error


def _create(job: Job, loaded: LoadedModel, tokens: Tokens) -> tuple[str, ...]:
    """Create the group of a stack and the arrays of its sites; return the sites to be written."""
    from flows.capture.sites import available_sites, site_shapes, sites_here

    stack = loaded.stack
    available = available_sites(stack)
    wanted = job.options.sites or tuple(name for name in DEFAULT_SITES if name in available)
    sites = sites_here(stack, loaded.stacks, wanted)
    create_model(
        job.repository,
        job.corpus.name,
        job.checkpoint.model,
        stack=stack.name,
        arrays=[
            ArraySpec(site_variable(shape.name), {**shape.kept_sizes, TOKEN: tokens.n_rows})
            for shape in site_shapes(stack, sites, job.options.layers)
        ],
        tokens=shown_tokens(loaded, tokens).coordinates(),
        attributes=model_facts(job, loaded, tokens),
    )
    return sites


def _needs_probabilities(options: CaptureOptions) -> bool:
    """Tell whether a site is a property of rows of attention, one a head and token."""
    wanted = [SITES[name] for name in options.sites or () if name in SITES]
    return any(HEAD in site.dims and HEAD_DIM not in site.dims for site in wanted)


def _provenance(job: Job, tokens: Tokens, loaded: LoadedModel) -> dict[str, JSON]:
    precision = job.options.precision
    return {
        "revision": job.checkpoint.revision,
        "weights_sha256": job.weights.weights_sha256,
        "weight_files": dict(job.weights.files),
        "tokens_sha256": tokens.sha256(),
        "source_dtype": loaded.source_dtype,
        "precision": "" if precision == FULL_PRECISION else precision,
        "checkpoint": job.checkpoint.place,
        "versions": {
            **{name: version(name) for name in _RECORDED_VERSIONS},
            "attention": loaded.attention,
        },
    }
