"""The rows that a step lacks, captured pass by pass after a check that batches change none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from flows.layers import layers_to_run, narrowed
from flows.streaming import PIECE_BYTES, continued
from store.schema import PROBABILITIES

if TYPE_CHECKING:
    from flows.capture.blocks import RowBlock
    from flows.capture.parts import Part
    from flows.capture.tokens import Tokens
    from flows.capture.weights import LoadedModel
    from flows.job import CaptureOptions, Job
    from flows.layers import Layers
    from flows.losses import MeanLoss
    from store.write import StepWriter


def missing_rows(
    job: Job,
    loaded: LoadedModel,
    tokens: Tokens,
    writer: StepWriter,
    loss: MeanLoss,
    progress: Callable[[int], None] | None,
) -> Iterator[RowBlock]:
    """Yield what a writer lacks, pass by pass.

    Args:
        job: What is run.
        loaded: Its model.
        tokens: What the chosen stack is shown, and the rows that are kept.
        writer: Writer of the step.
        loss: Takes the losses of tokens as they go by.
        progress: Called with the number of tokens just done.

    Raises:
        ReplayError: If rows of the model depend on what else is in a batch.
    """
    if writer.held_tokens == writer.n_tokens:
        yield from continued((), writer, writer.sites, slice(None))
        return
    first = int(np.searchsorted(tokens.row_offsets, writer.held_tokens))
    new = tokens.select(range(first, tokens.n_sequences)) if first else tokens
    layers = layers_to_run(writer.layers, loaded.stack.n_blocks)
    refuse_batch_effects(loaded, new, writer.sites, layers, job.options)
    passes = _passes(job, loaded, new, writer, layers, tokens.longest)
    report = _shared(progress, len(passes))
    for one in passes:
        blocks = loss.watching(_rows(one, job.options, report))
        if PROBABILITIES not in one.sites:
            blocks = narrowed(blocks, [writer], [layers])
        held = writer.held_tokens > 0
        yield from continued(blocks, writer, one.sites, one.depths) if held else blocks


def _passes(
    job: Job,
    loaded: LoadedModel,
    tokens: Tokens,
    writer: StepWriter,
    layers: Layers,
    key_positions: int,
) -> list[Part]:
    """Return what is captured one after the other; groups of probabilities need no narrowing."""
    from flows.capture.parts import Part

    rest = [site for site in writer.sites if site != PROBABILITIES]
    whole = Part(
        *(loaded, tokens, rest, writer.chunk_rows, layers, job.options.precision, key_positions),
        # Rows that go on after others are laid out anew, all sites of a block together.
        piece_bytes=None if writer.held_tokens else PIECE_BYTES,
    )
    passes = whole.passes()
    if PROBABILITIES in writer.sites:
        wanted = writer.layers[PROBABILITIES]
        passes += replace(whole, sites=[PROBABILITIES], layers=wanted).passes()
    return passes


def _rows(
    part: Part, options: CaptureOptions, report: Callable[[int], None] | None
) -> Iterator[RowBlock]:
    from flows.capture.forward import capture_stacks

    return capture_stacks(
        [part],
        batch_tokens=options.batch_tokens,
        allow_nonfinite=True,  # the writer looks, in its own thread, and knows the step
        progress=report,
    )


def _shared(progress: Callable[[int], None] | None, passes: int) -> Callable[[int], None] | None:
    """Return what counts a token once, though several passes go over it."""
    if progress is None or passes == 1:
        return progress
    done = told = 0

    def report(count: int) -> None:
        nonlocal done, told
        done += count
        progress(done // passes - told)
        told = done // passes

    return report


def refuse_batch_effects(
    loaded: LoadedModel,
    tokens: Tokens,
    sites: Sequence[str],
    layers: Layers,
    options: CaptureOptions,
) -> None:
    """Refuse a model whose rows depend on what else is in a batch.

    Raises:
        ReplayError: If they do.
    """
    from flows.capture.guard import check_batching

    check_batching(loaded, tokens, sites, layers=layers, batch_tokens=options.batch_tokens)
