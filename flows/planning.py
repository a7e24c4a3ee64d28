"""What an ingest would do: tokens, bytes, files, time, and whether it fits."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flows.capture.tokens import Tokens
from flows.ingestion import DEFAULT_OPTIONS, is_stored, prepare_job
from flows.inputs import Corpus, corpus_inputs, read_corpus
from flows.outstanding import Outstanding, cut_sequences, held_rows, outstanding
from flows.running import CaptureOptions, Job, refuse_if_cut
from flows.trial import ENOUGH_SECONDS, Trial, run_trial
from store.repository import Repository

if TYPE_CHECKING:
    from flows.capture.checkpoints import Checkpoint
    from flows.capture.items import Items


@dataclass(frozen=True)
class PlannedStep:
    """What an ingest would do about one checkpoint.

    Attributes:
        path: Group of the model.
        step: Training step.
        stored: Whether it is there already; then nothing would be done.
        tokens: Rows that are stored along the token axis: of a step that grows and lacks nothing
            else, those that are new.
        raw_bytes: Bytes of what would be stored before compression: the most that is written.
        stored_bytes: Bytes that would be written, by what a part of them took.
        files: Chunks that would hold them.
        seconds: Time, by what a part of it took.
        sequences: Sequences of the corpus.
        truncated_sequences: Those that are longer than the model takes, and would be cut.
    """

    path: str
    step: int
    stored: bool
    tokens: int
    raw_bytes: int
    stored_bytes: int
    files: int
    seconds: float
    sequences: int
    truncated_sequences: int


@dataclass(frozen=True)
class IngestPlan:
    """What an ingest would do.

    Attributes:
        steps: One entry a checkpoint.
        free_bytes: Free space where the store is, None for an object store.
        start_seconds: Time to import PyTorch and to warm up, once.
    """

    steps: tuple[PlannedStep, ...]
    free_bytes: int | None
    start_seconds: float = 0.0

    @property
    def missing(self) -> tuple[PlannedStep, ...]:
        """The checkpoints that would be run."""
        return tuple(step for step in self.steps if not step.stored)

    @property
    def raw_bytes(self) -> int:
        """The most that would be written."""
        return sum(step.raw_bytes for step in self.missing)

    @property
    def stored_bytes(self) -> int:
        """What would be written."""
        return sum(step.stored_bytes for step in self.missing)

    @property
    def seconds(self) -> float:
        """How long it would take."""
        return (self.start_seconds if self.missing else 0.0) + sum(
            step.seconds for step in self.steps
        )

    @property
    def fits(self) -> bool:
        """Whether what would be written is free, as far as one can know."""
        return self.free_bytes is None or self.stored_bytes <= self.free_bytes


def plan_ingest(
    store_uri: str,
    checkpoints: Sequence[Checkpoint],
    corpus: str,
    *,
    options: CaptureOptions = DEFAULT_OPTIONS,
    enough_seconds: float = ENOUGH_SECONDS,
) -> IngestPlan:
    """Find out what ingesting checkpoints would do.

    Checkpoint files are digested and the corpus is tokenized, as for an ingest. Of each model, one
    checkpoint that is missing is loaded, and run over a part of the corpus. Nothing is written to
    the store.

    Args:
        store_uri: The store.
        checkpoints: Checkpoints from :func:`flows.capture.find_checkpoints`.
        corpus: Name of a corpus in the store.
        options: How they would be run and stored.
        enough_seconds: A part of the corpus that takes as long is enough of a trial.

    Raises:
        UnknownNameError: If the store has no such corpus.
        IdentityConflictError: If something else is stored under a step.
        CaptureError: If a checkpoint is damaged, lacks its tokenizer, or cannot be run.
    """
    repository = Repository.open(store_uri)
    directory = repository.location.directory
    source = read_corpus(repository, corpus)
    planner = _Planner(repository, source, options, enough_seconds)
    steps = tuple(planner.planned(checkpoint) for checkpoint in checkpoints)
    free = None if directory is None else shutil.disk_usage(directory).free
    return IngestPlan(steps, free, planner.start_seconds)


class _Planner:
    """Plans one checkpoint after the other; those of one model share its trial."""

    def __init__(
        self,
        repository: Repository,
        corpus: Corpus,
        options: CaptureOptions,
        enough_seconds: float,
    ) -> None:
        self.start_seconds = 0.0
        self._repository, self._corpus, self._options = repository, corpus, options
        self._enough_seconds = enough_seconds
        self._shown: dict[str, Tokens | Items] = {}
        self._trials: dict[str, Trial] = {}
        self._preparing: dict[str, float] = {}

    def planned(self, checkpoint: Checkpoint) -> PlannedStep:
        """Return what would be done about a checkpoint."""
        started = time.perf_counter()
        job = prepare_job(self._repository, self._corpus, checkpoint, self._options)
        digesting = time.perf_counter() - started
        key = f"{job.weights.tokenizer_sha256} {job.weights.config_sha256}"
        shown = self._shown_of(job, key)
        plain = PlannedStep(
            path=job.path,
            step=checkpoint.step,
            stored=is_stored(job),
            tokens=held_rows(job),
            raw_bytes=0,
            stored_bytes=0,
            files=0,
            seconds=digesting,
            sequences=shown.n_sequences if isinstance(shown, Tokens) else len(shown),
            truncated_sequences=shown.truncated
            if isinstance(shown, Tokens)
            else cut_sequences(job),
        )
        if plain.stored:
            return plain
        if isinstance(shown, Tokens):
            refuse_if_cut(job, shown, shown)
        trials = [self._trial_of(left, key) for left in outstanding(job, shown)]
        sizes = [one for trial in trials for one in trial.sizes]
        rows = [
            trial.sizes[0].new_rows if isinstance(shown, Tokens) else trial.new_rows
            for trial in trials
        ]
        return replace(
            plain,
            tokens=max(rows),
            raw_bytes=sum(one.raw_bytes for one in sizes),
            stored_bytes=round(sum(trial.row_bytes * trial.new_rows for trial in trials)),
            files=sum(one.chunks for one in sizes),
            seconds=digesting + sum(self._preparing[key] + trial.seconds for trial in trials),
            truncated_sequences=max(
                plain.truncated_sequences, *(trial.truncated for trial in trials)
            ),
        )

    def _shown_of(self, job: Job, key: str) -> Tokens | Items:
        if key not in self._shown:
            # The first call also imports; what each ingest pays is the second one.
            first, second = _timed(job), _timed(job)
            if not self._shown:
                self.start_seconds += max(0.0, first[1] - second[1])
            self._shown[key], self._preparing[key] = second
        return self._shown[key]

    def _trial_of(self, left: Outstanding, key: str) -> Trial:
        if not self._trials:
            started = time.perf_counter()
            import flows.capture.forward
            import flows.capture.weights  # noqa: F401

            self.start_seconds += time.perf_counter() - started
        key = f"{key} {dict(left.held)}"
        if key not in self._trials:
            trial = run_trial(left, enough_seconds=self._enough_seconds)
            self.start_seconds += 0.0 if self._trials else trial.warm_up_seconds
            self._trials[key] = trial
        return self._trials[key]


def _timed(job: Job) -> tuple[Tokens | Items, float]:
    started = time.perf_counter()
    shown = corpus_inputs(job.corpus, job.checkpoint)
    return shown, time.perf_counter() - started
