"""Watching where checkpoints appear: find what is missing, store it, measure it; again and again.

This is the loop of ``actlas watch``; the Prefect flow in :mod:`flows.watch` does the same with a
task for each checkpoint.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from flows.capture.digests import DigestCache
from flows.capture.errors import CaptureError
from flows.capture.settling import last_change
from flows.ingestion import IngestResult, ingest_checkpoint
from flows.logs import fields
from flows.measurement import find_targets, measure_target
from flows.survey import Survey, Watched, name_of, survey
from store.errors import NonFiniteError, StepReservedError, UnknownNameError
from store.repository import Repository

if TYPE_CHECKING:
    from analysis.compute import MeasureReport
    from flows.capture.checkpoints import Checkpoint

_LOG: Final = logging.getLogger("actlas.watch")


@dataclass(frozen=True)
class Round:
    """What one round of watching found and did.

    Attributes:
        survey: What there was.
        ingested: What became of the checkpoints that were missing.
        measured: What was measured of the models watched.
        failures: Why a checkpoint, a source or a model failed, by its name.
        seconds: Time taken.
    """

    survey: Survey
    ingested: tuple[IngestResult, ...]
    measured: tuple[MeasureReport, ...]
    failures: Mapping[str, str]
    seconds: float


@dataclass
class Watcher:
    """Goes through the rounds, and remembers between them what need not be done again.

    Attributes:
        watched: What is watched.
        digest: Gives digests of files.
    """

    watched: Watched
    digest: DigestCache = field(default_factory=DigestCache)
    _refused: dict[tuple[Checkpoint, float | None], Exception] = field(default_factory=dict)
    _measured_at: str = ""

    def round(self, *, patient: bool = False, strict: bool = False) -> Round:
        """Store and measure what has appeared; nothing that fails stops anything else.

        Args:
            patient: Whether to wait, once, until checkpoints that changed just now have come to
                rest, instead of leaving them to the next round.
            strict: Whether a source that is not there is an error, before anything is run.

        Raises:
            StoreError: If there is no store, or no such corpus in it.
            CheckpointError: If a source is not there, and that is an error.
        """
        started = time.monotonic()
        found = survey(self.watched, self.digest)
        if patient and found.unfinished:
            time.sleep(self.watched.settle)
            found = survey(self.watched, self.digest)
        if strict and found.lost:
            lost = found.lost[0]
            raise type(lost)(
                f"{lost} (a run that is yet to begin needs its folder at least)"
            ) from lost
        failures: dict[str, str] = {}
        for name, reason in found.broken.items():
            _fail(failures, name, reason)
        ingested = self._ingest(found, failures)
        measured = self._measure(found, failures)
        return Round(found, ingested, measured, failures, time.monotonic() - started)

    def _ingest(self, found: Survey, failures: dict[str, str]) -> tuple[IngestResult, ...]:
        results = []
        # What another watcher is storing comes last: meanwhile there may be other things to do.
        pending = deque((checkpoint, timedelta()) for checkpoint in found.missing)
        while pending:
            checkpoint, wait = pending.popleft()
            try:
                results.append(self._ingest_one(checkpoint, wait))
            except StepReservedError as error:
                if wait:
                    _fail(failures, name_of(checkpoint), error)
                else:
                    pending.append((checkpoint, self.watched.capture.rival_wait))
            except Exception as error:  # noqa: BLE001  # whatever one model does, there are others
                _fail(failures, name_of(checkpoint), error)
        return tuple(results)

    def _ingest_one(self, checkpoint: Checkpoint, wait: timedelta) -> IngestResult:
        """Store a checkpoint, unless the same files were refused before: a run may take hours."""
        key = checkpoint, last_change(checkpoint)
        if key in self._refused:
            raise self._refused[key]
        try:
            result = ingest_checkpoint(
                self.watched.store,
                checkpoint,
                self.watched.corpus,
                options=replace(self.watched.capture, rival_wait=wait),
                digest=self.digest,
            )
        except (CaptureError, NonFiniteError) as error:
            self._refused[key] = error
            raise
        _LOG.info(
            "%s stored: %d bytes in %.1f s",
            name_of(checkpoint),
            result.added_bytes,
            result.seconds,
            extra=fields("ingested", **asdict(result)),
        )
        return result

    def _measure(self, found: Survey, failures: dict[str, str]) -> tuple[MeasureReport, ...]:
        """Measure the models watched, unless the store is as it was after the last time."""
        repository = Repository.open(self.watched.store)
        if self.watched.measure is None or repository.snapshot_id() == self._measured_at:
            return ()
        reports, failed = measure_models(repository, self.watched, found)
        failures.update(failed)
        self._measured_at = "" if failed else repository.snapshot_id()
        return tuple(reports)


def measure_models(
    repository: Repository, watched: Watched, found: Survey
) -> tuple[list[MeasureReport], dict[str, str]]:
    """Compute what is missing or stale of the metrics of the models that a survey found.

    Returns:
        What was measured, and why models could not be, by their path.
    """
    assert watched.measure is not None
    reports: list[MeasureReport] = []
    failures: dict[str, str] = {}
    for model in found.models:
        try:
            targets = find_targets(repository, corpus=watched.corpus, models=[model])
        except UnknownNameError:
            continue  # None of its checkpoints could be stored.
        for target in targets:
            path = target.model.path
            try:
                report = measure_target(watched.store, target, options=watched.measure)
            except Exception as error:  # noqa: BLE001  # the other models can be sound
                _fail(failures, path, error)
                continue
            reports.append(report)
            if report.computed:
                _LOG.info(
                    "%s measured: %d values in %.1f s",
                    path,
                    report.computed,
                    report.seconds,
                    extra=fields("measured", **asdict(report)),
                )
    return reports, failures


def _fail(failures: dict[str, str], name: str, error: Exception | str) -> None:
    failures[name] = str(error) or type(error).__name__
    _LOG.error(
        "%s failed: %s",
        name,
        failures[name],
        extra=fields("failed", name=name, reason=failures[name]),
    )


def watch(
    watched: Watched,
    *,
    every: float,
    on_round: Callable[[Round], None],
    stop: threading.Event | None = None,
) -> None:
    """Watch until told to stop.

    What goes wrong in the first round is raised, since it is the caller's to set right; later on
    it is told and tried again, since a store or a file system may be away for a while.

    Args:
        watched: What is watched.
        every: Seconds between the beginnings of two rounds.
        on_round: Called with each round, in this thread.
        stop: Set to end after the round in progress.

    Raises:
        StoreError: If at first there is no store, or no such corpus in it.
        CheckpointError: If at first a source does not exist.
    """
    watcher = Watcher(watched)
    ending = stop or threading.Event()
    first = True
    while not ending.is_set():
        started = time.monotonic()
        try:
            latest = watcher.round(strict=first)
        except Exception as error:
            if first:
                raise
            failures: dict[str, str] = {}
            _fail(failures, watched.store, error)
            latest = Round(Survey.empty(), (), (), failures, 0.0)
        first = False
        on_round(latest)
        rest = min(every, watched.settle) if latest.survey.unfinished else every
        ending.wait(max(0.0, started + rest - time.monotonic()))
