"""The Prefect flow ``ingest``: one task a checkpoint; a broken one does not stop the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from prefect import flow

from flows.attempts import attempt_each, attempted
from flows.capture.checkpoints import Checkpoint, find_checkpoints
from flows.failures import raise_failures
from flows.ingestion import IngestResult, ingest_checkpoint
from flows.requests import IngestRequest
from flows.running import CaptureOptions
from flows.sizes import refuse_what_does_not_fit
from flows.survey import name_of


@attempted("ingest {checkpoint.model} step {checkpoint.step}")
def ingest_one(
    store: str, checkpoint: Checkpoint, corpus: str, options: CaptureOptions
) -> IngestResult:
    """Store one checkpoint, unless the store's catalogue has it."""
    return ingest_checkpoint(store, checkpoint, corpus, options=options)


def ingest_each(
    checkpoints: list[Checkpoint],
    *,
    store: str,
    corpus: str,
    options: CaptureOptions,
    time_limit: int,
    on_done: Callable[[], None] = lambda: None,
) -> tuple[list[IngestResult], dict[str, str]]:
    """Ingest checkpoints, each with a task of its own, within a flow.

    Args:
        checkpoints: Which ones.
        store: The store.
        corpus: Name of a corpus in it.
        options: How each is run and stored.
        time_limit: Seconds that one may take.
        on_done: Called after each.

    Returns:
        What became of them, and why some failed, by name.
    """
    if not checkpoints:
        return [], {}
    # Before the first task: a time-out in the middle of this import would break it for every
    # later task of the process. Not above: a flow that finds nothing to do needs none of it.
    import flows.capture.forward  # noqa: F401

    limited = ingest_one.with_options(timeout_seconds=time_limit)
    attempts = (
        (
            name_of(checkpoint),
            lambda one=checkpoint: limited(store, one, corpus, options, return_state=True),
        )
        for checkpoint in checkpoints
    )
    return attempt_each(attempts, IngestResult, _told, time_limit=time_limit, on_done=on_done)


def _told(result: IngestResult) -> str:
    told = "stored" if result.ingested else "was stored already"
    return "; ".join(filter(None, (told, result.shares)))


@flow(name="ingest", persist_result=False)
def ingest(request: IngestRequest) -> list[dict[str, object]]:
    """Ingest every checkpoint of some models that the store does not hold yet.

    Args:
        request: What to ingest and where to.

    Returns:
        What became of each checkpoint, the fields of an ``IngestResult``.

    Raises:
        CheckpointError: If a source holds no checkpoint.
        StoreFullError: If the disk cannot hold what will be stored.
        FlowError: If checkpoints failed, at the end, naming them.
    """
    checkpoints = [
        checkpoint
        for source in request.models
        for checkpoint in find_checkpoints(source, steps=request.steps)
    ]
    if not request.ignore_space:
        refuse_what_does_not_fit(
            request.store, checkpoints, request.corpus, request.capture_options()
        )
    results, failures = ingest_each(
        checkpoints,
        store=request.store,
        corpus=request.corpus,
        options=request.capture_options(),
        time_limit=request.time_limit,
    )
    raise_failures("checkpoints", failures, len(checkpoints))
    return [asdict(result) for result in results]
