"""From a step of the store back to the checkpoint that it was computed from."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from flows.capture.checkpoints import find_checkpoints
from flows.capture.configs import load_config
from flows.capture.errors import CheckpointError, UnknownStepError
from flows.capture.random_sources import RANDOM_PREFIX
from flows.capture.rounding import FULL_PRECISION, PRECISIONS, Precision
from flows.ingestion import prepare_job
from flows.inputs import read_corpus
from flows.running import CaptureOptions, Job
from store.identity import step_difference

if TYPE_CHECKING:
    from flows.capture.checkpoints import Checkpoint
    from store.catalogue import HeldModel, HeldStep
    from store.repository import Repository

_RANDOM_NAME: Final = "random-"


def source_job(
    repository: Repository,
    held: HeldModel,
    step: HeldStep,
    *,
    source: str | None,
    options: CaptureOptions,
    newest: bool = False,
    trusted: bool = False,
) -> Job:
    """Find the checkpoint that a step was stored from, and prove by digests that it is the one.

    Args:
        repository: The store.
        held: The model as the catalogue lists it.
        step: One of its complete steps.
        source: Where the checkpoint is; by default where it lay when it was run, else the
            recorded id and revision are looked up, as a folder below the working directory, on
            the Hub, or as an untrained model.
        options: How it is to be run.
        newest: Whether it is to be run over all that the corpus holds by now, rather than over
            what it held when the step was stored.
        trusted: Whether Python code that comes with the checkpoint may run.

    Raises:
        CheckpointError: If there is no such checkpoint, or it has other weights, another config
            or another tokenizer than the step was stored from.
    """
    where = f"{held.path} step {step.step}"
    if "imported" in step.identity:
        raise CheckpointError(f"{where} was imported as tensors, so that there is no model to run")
    checkpoint = replace(_find(held, step, where, source), trusted=trusted)
    load_config(checkpoint)  # It says what is in the way of reading one at all, before digests do.
    options = options.like(step.identity)
    corpus = read_corpus(repository, held.corpus)
    read = [one for one in corpus.earlier() if one.identity() == step.identity["corpus"]]
    job = prepare_job(repository, read[0] if read else corpus, checkpoint, options)
    differences = step_difference(step.identity, job.identity)
    if differences:
        lines = "".join(f"\n  {line}" for line in differences)
        raise CheckpointError(
            f"{checkpoint.source} is not what {where} was stored from:{lines}\n"
            "Give the checkpoint that it was stored from with --source"
        )
    return prepare_job(repository, corpus, checkpoint, options) if read and newest else job


def stored_precision(step: HeldStep) -> Precision:
    """Return the dtype that the values of a step were rounded to, float32 if to none."""
    (found,) = (name for name in PRECISIONS if name == (step.precision or FULL_PRECISION))
    return found


def _find(held: HeldModel, step: HeldStep, where: str, source: str | None) -> Checkpoint:
    """Return the checkpoint of a step, under the model name and step that the store has."""
    named = _recorded_source(held, step) if source is None else source
    if source is None and step.checkpoint:
        with suppress(CheckpointError):
            (there,) = find_checkpoints(step.checkpoint, name=held.model)
            return replace(there, step=step.step)
    try:
        found = find_checkpoints(named, name=held.model)
    except CheckpointError as error:
        if source is not None:
            raise
        lay = f", at {step.checkpoint}" if step.checkpoint else ""
        raise CheckpointError(
            f"{where} was stored from {held.model}, revision {step.revision}{lay}, which is not"
            f" found again: {error}. Give its place with --source"
        ) from error
    if len(found) > 1:
        steps = ", ".join(str(one.step) for one in found)
        found = [one for one in found if one.step == step.step]
        if not found:
            raise UnknownStepError(f"{named} has no step {step.step}: it has {steps}")
    return replace(found[0], step=step.step)


def _recorded_source(held: HeldModel, step: HeldStep) -> str:
    if held.model.startswith(_RANDOM_NAME):
        seed = step.revision.removeprefix("seed")
        return f"{RANDOM_PREFIX}{held.model.removeprefix(_RANDOM_NAME)}@{seed}"
    if "/" in held.model:
        return f"{held.model}@{step.revision}={step.step}"
    return held.model
