"""What lies where checkpoints appear, and which of it the store lacks; nothing is run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flows.capture.checkpoints import find_checkpoints
from flows.capture.errors import CaptureError, CheckpointError
from flows.capture.hub import is_repository
from flows.capture.settling import is_settled, last_change
from flows.ingestion import prepare_job, satisfies
from flows.inputs import Corpus, read_corpus
from flows.measurement import MeasureOptions
from flows.running import DEFAULT_SITES, CaptureOptions, Job
from store.catalogue import HeldStep, catalogue
from store.errors import UnknownNameError
from store.identity import step_difference
from store.repository import Repository
from store.schema import node_name

if TYPE_CHECKING:
    from flows.capture.checkpoints import Checkpoint
    from flows.capture.digests import Digest

SETTLE_SECONDS: Final = 30.0
"""Rest after which a checkpoint counts as written."""

_EVERY_STEP: Final = "@all"

_Held = Mapping[str, Mapping[int, HeldStep]]
"""Step by number by path of its group."""


@dataclass(frozen=True)
class Watched:
    """Where checkpoints appear, and what is to be done with them.

    Attributes:
        store: The store.
        sources: Folders of checkpoint-N folders, or ids on the Hub.
        corpus: Name of a corpus in the store.
        capture: How each checkpoint is run and stored.
        measure: What is measured of it, None for nothing.
        settle: Seconds of rest after which a checkpoint counts as written.
        trusted: Whether Python code that comes with checkpoints may run.
    """

    store: str
    sources: tuple[str, ...]
    corpus: str
    capture: CaptureOptions = field(default_factory=CaptureOptions)
    measure: MeasureOptions | None = field(default_factory=MeasureOptions)
    settle: float = SETTLE_SECONDS
    trusted: bool = False


class _State(Enum):
    HELD = auto()
    MISSING = auto()
    UNFINISHED = auto()


@dataclass(frozen=True)
class Survey:
    """What was found.

    Attributes:
        models: Names of the models that have checkpoints.
        held: Number of checkpoints that the store holds.
        newest: Newest step of each model that a source has.
        missing: Checkpoints that are whole and not held, by step.
        unfinished: Names of checkpoints that something may still be writing.
        broken: Why checkpoints and sources cannot be read, by name.
        lost: The errors of sources that could not be looked into.
        lag: Seconds since the checkpoint that has waited longest was written, 0 if none waits.
    """

    models: tuple[str, ...]
    held: int
    newest: Mapping[str, int]
    missing: tuple[Checkpoint, ...]
    unfinished: tuple[str, ...]
    broken: Mapping[str, str]
    lost: tuple[CheckpointError, ...]
    lag: float

    @classmethod
    def empty(cls) -> Survey:
        """Return the survey of nothing."""
        return cls((), 0, {}, (), (), {}, (), 0.0)


def name_of(checkpoint: Checkpoint) -> str:
    """Return what a checkpoint is called in messages."""
    return f"{checkpoint.model} step {checkpoint.step}"


def survey(watched: Watched, digest: Digest) -> Survey:
    """Look at every checkpoint of the sources, and compare with what the store holds.

    A checkpoint that changed just now is left alone; one that is at rest and not whole is broken.
    A folder without a checkpoint is no error: the first one may be yet to come.

    Args:
        watched: Where to look.
        digest: What gives the SHA-256 of a file.

    Raises:
        StoreError: If there is no store.
        UnknownNameError: If it has no such corpus.
    """
    repository = Repository.open(watched.store)
    corpus = read_corpus(repository, watched.corpus)
    found, lost = _find(watched)
    held = _held_steps(repository, corpus.name, {checkpoint.model for checkpoint in found})
    states: dict[Checkpoint, _State] = {}
    broken = {source: str(error) for source, error in lost.items()}
    for checkpoint in found:
        try:
            states[checkpoint] = _state(repository, corpus, checkpoint, watched, held, digest)
        except FileNotFoundError:
            continue  # Training deletes old checkpoints while we look.
        except (CaptureError, OSError) as error:
            broken[name_of(checkpoint)] = str(error)

    def those(state: _State) -> list[Checkpoint]:
        return [checkpoint for checkpoint, its in states.items() if its is state]

    missing = those(_State.MISSING)
    return Survey(
        models=tuple(dict.fromkeys(checkpoint.model for checkpoint in found)),
        held=len(those(_State.HELD)),
        newest={checkpoint.model: checkpoint.step for checkpoint in found},
        missing=tuple(missing),
        unfinished=tuple(map(name_of, those(_State.UNFINISHED))),
        broken=broken,
        lost=tuple(lost.values()),
        lag=max(map(_age, missing), default=0.0),
    )


def _state(
    repository: Repository,
    corpus: Corpus,
    checkpoint: Checkpoint,
    watched: Watched,
    held: _Held,
    digest: Digest,
) -> _State:
    """Tell what is to be done about a checkpoint.

    It is digested even where no step of its number is held: whether it is whole is then known
    before anything is run.
    """
    if not is_settled(checkpoint, watched.settle):
        return _State.UNFINISHED
    job = prepare_job(repository, corpus, checkpoint, watched.capture, digest=digest)
    path = f"{corpus.name}/{node_name(checkpoint.model)}"
    groups = [steps for name, steps in held.items() if name == path or name.startswith(f"{path}/")]
    steps = [group.get(checkpoint.step) for group in groups]
    there = bool(steps) and all(step is not None and _is_held(step, job) for step in steps)
    return _State.HELD if there else _State.MISSING


def _is_held(step: HeldStep, job: Job) -> bool:
    """Tell whether a watch leaves a step as it is: it brings no site back that was dropped.

    Where no sites are named, those that the step does not have are not missed.
    """
    if job.options.sites is None:
        kept = tuple(site for site in DEFAULT_SITES if site in step.sites)
        if not kept:
            return not step_difference(step.identity, job.identity)
        job = replace(job, options=replace(job.options, sites=kept))
    return satisfies(step, job)


def _age(checkpoint: Checkpoint) -> float:
    """Return for how long a checkpoint has been there, 0 where nothing tells."""
    try:
        changed = last_change(checkpoint)
    except FileNotFoundError:
        return 0.0
    return 0.0 if changed is None else max(0.0, time.time() - changed)


def _find(watched: Watched) -> tuple[list[Checkpoint], dict[str, CheckpointError]]:
    """Return the checkpoints of all sources, and why sources could not be looked into."""
    found: list[Checkpoint] = []
    lost: dict[str, CheckpointError] = {}
    for source in watched.sources:
        try:
            found += find_checkpoints(_with_every_step(source), trusted=watched.trusted)
        except CheckpointError as error:
            if not Path(source).expanduser().is_dir():
                lost[source] = error
    return found, lost


def _with_every_step(source: str) -> str:
    remote = is_repository(source) and not Path(source).parent.exists()
    return source + _EVERY_STEP if remote and "@" not in source else source


def _held_steps(repository: Repository, corpus: str, models: set[str]) -> _Held:
    held: dict[str, dict[int, HeldStep]] = {}
    for model in models:
        try:
            listed = catalogue(repository, corpus=corpus, model=model)
        except UnknownNameError:
            continue
        for item in listed:
            held[item.path] = {step.step: step for step in item.steps if step.complete}
    return held
