"""Many checkpoints one after another, or side by side; a broken one does not stop the others."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from flows.capture.errors import CaptureError, UnknownSiteError
from flows.capture.fetching import release, with_weights
from flows.capture.integrity import file_sha256
from flows.capture.library import import_library
from flows.capture.reading_ahead import read_ahead
from flows.capture.settling import file_state
from flows.ingestion import IngestResult, ingest_checkpoint, is_stored, prepare_job
from flows.inputs import read_corpus
from flows.running import CaptureOptions, Progress
from flows.survey import name_of
from store.errors import IdentityConflictError, NonFiniteError, StoreError
from store.repository import Repository

if TYPE_CHECKING:
    from flows.capture.checkpoints import Checkpoint
    from flows.capture.digests import Digest

Report = Callable[[str], AbstractContextManager[Progress]]
"""Opens the progress of one checkpoint, by its name."""

_FAULTS = (CaptureError, IdentityConflictError, NonFiniteError)
"""What is the fault of one checkpoint: the others can be good."""


@dataclass(frozen=True)
class Sweep:
    """What to ingest, and how.

    Attributes:
        store_uri: The store.
        checkpoints: The checkpoints, in order.
        corpus: Name of a corpus in the store.
        options: How each is run and stored.
        clean_cache: Whether what was fetched of a checkpoint is deleted once it is stored.
        workers: Processes that run checkpoints side by side, each on a GPU of its own if there
            are any.
    """

    store_uri: str
    checkpoints: Sequence[Checkpoint]
    corpus: str
    options: CaptureOptions
    clean_cache: bool = False
    workers: int = 1


@dataclass(frozen=True)
class Outcome:
    """What became of one checkpoint: a result, or why there is none."""

    name: str
    result: IngestResult | None
    problem: str = ""


def ingest_sweep(sweep: Sweep, report: Report) -> Iterator[Outcome]:
    """Ingest checkpoints, and yield what becomes of each.

    While one is run, the next is fetched, digested and, where there is room, read into memory
    (`flows.capture.reading_ahead`).

    Args:
        sweep: What to ingest.
        report: Opens the progress of a checkpoint; not used with several workers.

    Raises:
        CaptureError: If there is only one checkpoint, and it fails.
        UnknownSiteError: If a model lacks a site that was asked for.
        StoreError: If the store cannot take any.
    """
    if sweep.workers > 1 and len(sweep.checkpoints) > 1:
        yield from _side_by_side(sweep)
        return
    digest = _remembered()
    if len(sweep.checkpoints) > 1:
        import_library()
    with ThreadPoolExecutor(1, "actlas-ahead") as ahead:
        coming: Future[None] | None = None
        for number, checkpoint in enumerate(sweep.checkpoints):
            if coming is not None:
                coming.result()
            following = sweep.checkpoints[number + 1 : number + 2]
            coming = ahead.submit(_prepare, sweep, following[0], digest) if following else None
            yield _outcome(sweep, checkpoint, digest, report)


def _remembered() -> Digest:
    """Return what digests a file once, and again only when it has changed."""
    known: dict[tuple[Path, str], str] = {}

    def digest(file: Path) -> str:
        key = file.resolve(), file_state(file.stat())
        if key not in known:
            known[key] = file_sha256(file)
        return known[key]

    return digest


def _outcome(sweep: Sweep, checkpoint: Checkpoint, digest: Digest, report: Report) -> Outcome:
    name = name_of(checkpoint)
    try:
        with report(name) as progress:
            result = ingest_checkpoint(
                sweep.store_uri,
                checkpoint,
                sweep.corpus,
                options=sweep.options,
                digest=digest,
                progress=progress,
            )
    except UnknownSiteError:
        raise  # the fault of whoever asked, not of a checkpoint
    except _FAULTS as error:
        if len(sweep.checkpoints) == 1:
            raise
        return Outcome(name, None, str(error))
    if sweep.clean_cache:
        release(checkpoint)
    return Outcome(name, result)


def _prepare(sweep: Sweep, checkpoint: Checkpoint, digest: Digest) -> None:
    """Fetch, digest and read what is to be run next; what is wrong with it, its turn tells."""
    if checkpoint.random is not None:
        return
    with suppress(CaptureError, StoreError, OSError):
        repository = Repository.open(sweep.store_uri)
        corpus = read_corpus(repository, sweep.corpus)
        job = prepare_job(repository, corpus, checkpoint, sweep.options, digest=digest)
        if not is_stored(job):
            read_ahead(with_weights(checkpoint))


def _side_by_side(sweep: Sweep) -> Iterator[Outcome]:
    context = multiprocessing.get_context("spawn")
    workers = min(sweep.workers, len(sweep.checkpoints))
    numbers = context.Queue()
    for number in range(workers):
        numbers.put(number)
    with ProcessPoolExecutor(workers, context, _begin_worker, (numbers, workers)) as pool:
        futures = [pool.submit(_run_one, sweep, checkpoint) for checkpoint in sweep.checkpoints]
        for future in as_completed(futures):
            yield future.result()


_worker = 0


def _begin_worker(numbers: multiprocessing.Queue[int], workers: int) -> None:
    global _worker
    _worker = numbers.get()
    from flows.capture.devices import share_threads

    share_threads(max(1, (os.cpu_count() or 1) // workers))


def _run_one(sweep: Sweep, checkpoint: Checkpoint) -> Outcome:
    from flows.capture.devices import nth_device

    options = replace(sweep.options, device=nth_device(sweep.options.device, _worker))
    name = name_of(checkpoint)
    try:
        result = ingest_checkpoint(sweep.store_uri, checkpoint, sweep.corpus, options=options)
    except UnknownSiteError:
        raise
    except _FAULTS as error:
        return Outcome(name, None, str(error))
    if sweep.clean_cache:
        release(checkpoint)
    return Outcome(name, result)
