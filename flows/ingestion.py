"""One checkpoint into the store: find out whether it is there, else run it and commit once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import zarr

from flows.capture.digests import Digest
from flows.capture.fingerprints import Fingerprint, fingerprint
from flows.capture.integrity import file_sha256
from flows.capture.rounding import Precision
from flows.capture.settling import file_states
from flows.contents import contents_of
from flows.inputs import Corpus, preparation, read_corpus, require_kind
from flows.layers import lacking, layers_of
from flows.running import CaptureOptions, Job, Progress, run_job
from store.catalogue import HeldStep, find_step
from store.identity import JSON, step_difference
from store.repository import Repository
from store.schema import ENCODER_DECODER, STACKS, STEP, sites_among
from store.write import reserve_step

if TYPE_CHECKING:
    from flows.capture.checkpoints import Checkpoint

DEFAULT_OPTIONS: Final = CaptureOptions()


@dataclass(frozen=True)
class IngestResult:
    """What became of one checkpoint.

    Attributes:
        path: Group of the model, ``CORPUS/MODEL``.
        step: Training step.
        ingested: Whether a model was run; False when all of it was there already.
        sites: Sites the store holds for the step.
        holds: The same, each with its layers where it has not all: ``residual[1:3]``.
        stored_bytes: Encoded bytes of its activations.
        added: Sites that were stored now, each with the layers that were.
        added_bytes: Encoded bytes that the step holds more than before.
        added_tokens: Tokens of the corpus that the step lacked, since that grew.
        seconds: Time taken.
        sequences: Sequences of the corpus.
        truncated_sequences: Those that were longer than the model takes, and were cut.
        same_weights: Other steps of the model with the same weights.
        shared_weights: Other steps of it with a weight file in common.
    """

    path: str
    step: int
    ingested: bool
    sites: tuple[str, ...]
    holds: tuple[str, ...]
    stored_bytes: int
    added: tuple[str, ...]
    added_bytes: int
    added_tokens: int
    seconds: float
    sequences: int
    truncated_sequences: int
    same_weights: tuple[int, ...] = ()
    shared_weights: tuple[int, ...] = ()

    @property
    def shares(self) -> str:
        """Which other steps have weights of this one, in words; nothing if none has."""
        same, partly = (
            ", ".join(map(str, steps)) for steps in (self.same_weights, self.shared_weights)
        )
        notes = (
            f"the same weights as step {same}" if same else "",
            f"a weight file in common with step {partly}" if partly else "",
        )
        return "; ".join(filter(None, notes))


def ingest_checkpoint(
    store_uri: str,
    checkpoint: Checkpoint,
    corpus: str,
    *,
    options: CaptureOptions = DEFAULT_OPTIONS,
    digest: Digest = file_sha256,
    progress: Progress | None = None,
) -> IngestResult:
    """Store a checkpoint's activations over a corpus, unless they are there.

    Nothing becomes visible before all of it is there. What is stored under the same step is
    compared by what it was made from, never by its name alone.

    Args:
        store_uri: The store.
        checkpoint: A checkpoint from :func:`flows.capture.find_checkpoints`.
        corpus: Name of a corpus in the store.
        options: How it is run and stored.
        digest: What gives the SHA-256 of a file.
        progress: Called with the number of tokens just done, and of all.

    Raises:
        UnknownNameError: If the store has no such corpus.
        IdentityConflictError: If something else is stored under the same step or model name.
        StoreError: If the store cannot take it: full, or another writer has the step.
        CaptureError: If the checkpoint cannot be read or run.
    """
    started = time.monotonic()
    repository = Repository.open(store_uri)
    source = read_corpus(repository, corpus)
    job = prepare_job(repository, source, checkpoint, options, digest=digest)
    before = contents_of(_continued(job))
    ingested = grows(job) and run_job(of_stored_sites(job), progress)
    if not is_stored(job):
        ingested = run_job(job, progress) or ingested
    steps = held_steps(job)
    held = [step for step in steps.values() if step is not None]
    now = contents_of(held)
    added = now.beyond(before)
    facts = repository.read()[next(iter(steps))].attrs.asdict()
    return IngestResult(
        path=job.path,
        step=checkpoint.step,
        ingested=ingested,
        sites=held[0].sites,
        holds=now.named,
        stored_bytes=now.stored_bytes,
        added=added.named,
        added_bytes=added.stored_bytes,
        added_tokens=added.n_tokens,
        seconds=time.monotonic() - started,
        sequences=_count(facts, "n_sequences"),
        truncated_sequences=_count(facts, "truncated_sequences"),
        same_weights=held[0].duplicates,
        shared_weights=held[0].shared,
    )


def prepare_job(
    repository: Repository,
    corpus: Corpus,
    checkpoint: Checkpoint,
    options: CaptureOptions,
    *,
    digest: Digest = file_sha256,
) -> Job:
    """Digest a checkpoint and put together what decides the values it will give.

    Raises:
        CheckpointError: If files of the checkpoint are missing or damaged.
        InputError: If the model takes other kinds of input than the corpus holds.
    """
    if checkpoint.random is not None:
        # Only drawing its weights tells what they are: look first whether that is worth while.
        require_kind(corpus, checkpoint)
    prepared = preparation(corpus, checkpoint)
    states = file_states(checkpoint)
    weights = fingerprint(checkpoint, digest=digest)
    if options.rows.per_sequence is not None:
        options = replace(options, rows=replace(options.rows, seed=corpus.seed))
    identity = _identity(corpus, weights, options.precision) | prepared | options.identity()
    former = tuple({**identity, "corpus": one.identity()} for one in corpus.earlier())
    return Job(repository, corpus, checkpoint, weights, identity, former, options, states)


def grows(job: Job) -> bool:
    """Tell whether a step is there over what the corpus was, so that only more is to be run."""
    return any(
        not step_difference(step.identity, former)
        for step in _stacks_held(job)
        for former in job.grown_from
    )


def _continued(job: Job) -> list[HeldStep]:
    """Return what is there of a step and stays, of each stack: not what is to be superseded."""
    wanted = (job.identity, *job.grown_from)
    return [
        step
        for step in _stacks_held(job)
        if any(not step_difference(step.identity, one) for one in wanted)
    ]


def _stacks_held(job: Job) -> list[HeldStep]:
    return [step for step in held_steps(job).values() if step is not None]


def of_stored_sites(job: Job) -> Job:
    """Return a job for all sites and layers that a step has, and no other."""
    held = _stacks_held(job)
    stored = {site for step in held for site in step.sites}
    sites = sites_among(stored)
    nonfinite = job.options.allow_nonfinite or any(step.nonfinite for step in held)
    layers = layers_of(held)
    options = replace(job.options, sites=sites, layers=layers, allow_nonfinite=nonfinite)
    return replace(job, options=options)


def is_stored(job: Job) -> bool:
    """Tell whether a step is there with all that is wanted of it; no model is loaded.

    Raises:
        IdentityConflictError: If something else is there and is not to be superseded.
    """
    steps = held_steps(job)
    for path, held in steps.items():
        if held is None:
            return False
        if step_difference(held.identity, job.identity):
            if not job.options.supersede and not grows(job):
                # It refuses, and says what differs.
                reserve_step(job.repository, path, held.step, identity=job.identity)
            return False
        if not satisfies(held, job):
            return False
    return bool(steps)


def satisfies(held: HeldStep, job: Job) -> bool:
    """Tell whether a stored step was made from the same, and lacks no site or layer wanted."""
    same = not step_difference(held.identity, job.identity)
    return same and not lacking(held, job.options)


def _identity(corpus: Corpus, weights: Fingerprint, precision: Precision) -> dict[str, JSON]:
    """Return everything that changes the values of a step, known without running the model.

    Versions of libraries are recorded with the step rather than compared: a new one is no reason
    to refuse the checkpoints that come after it. With the config they say which attention the
    model's default was.
    """
    return {
        "weights_sha256": weights.weights_sha256,
        "config_sha256": weights.config_sha256,
        "tokenizer_sha256": weights.tokenizer_sha256 if corpus.has_text else None,
        "corpus": corpus.identity(),
        "dtype": "as stored",
        "precision": precision,
        "attention": "default",
    }


def _count(facts: Mapping[str, JSON], name: str) -> int:
    value = facts.get(name)
    return value if isinstance(value, int) else 0


def held_steps(job: Job) -> dict[str, HeldStep | None]:
    """Return the job's step in the group of the model, or in those of its stacks, by path."""
    root = job.repository.read()
    group = root.get(job.path)
    if not isinstance(group, zarr.Group):
        return {}
    paths = [job.path] if STEP in group else [f"{job.path}/{stack}" for stack in _stacks(group)]
    return {
        path: find_step(job.repository, path, job.checkpoint.step) if path in root else None
        for path in paths
    }


def _stacks(group: zarr.Group) -> Sequence[str]:
    """Return the stacks that a model has over a corpus, as the group of any of them says."""
    there = (group[stack].attrs.asdict() for stack in STACKS if stack in group)
    named = next((facts["stacks"] for facts in there if "stacks" in facts), None)
    if not isinstance(named, list) or named == [*ENCODER_DECODER[:1]]:
        # Earlier versions kept the encoder alone of a model of sounds: its decoder is to be added.
        return ENCODER_DECODER
    return [str(stack) for stack in named]
