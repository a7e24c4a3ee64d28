"""The Prefect flow ``ingest``: one task a checkpoint; a broken one does not stop the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from prefect import flow

from flows.attempts import attempt_each, attempted
from flows.capture.checkpoints import Checkpoint, find_present
from flows.capture.fetching import release
from flows.failures import raise_failures
from flows.ingestion import IngestResult, ingest_checkpoint
from flows.requests import IngestRequest
from flows.running import CaptureOptions, unwatched
from flows.sizes import refuse_what_does_not_fit
from flows.survey import name_of
from flows.sweep import Outcome, Sweep, ingest_sweep


@attempted("ingest {checkpoint.model} step {checkpoint.step}")
def ingest_one(
    store: str,
    checkpoint: Checkpoint,
    corpus: str,
    options: CaptureOptions,
    *,
    clean_cache: bool = False,
) -> IngestResult:
    """Store one checkpoint, unless the store's catalogue has it."""
    result = ingest_checkpoint(store, checkpoint, corpus, options=options)
    if clean_cache:
        release(checkpoint)
    return result


@attempted("ingest over {sweep.corpus} side by side")
def ingest_side_by_side(sweep: Sweep) -> list[Outcome]:
    """Store checkpoints by several processes; another attempt finds what is done."""
    return list(ingest_sweep(sweep, unwatched))


def ingest_each(
    checkpoints: list[Checkpoint],
    *,
    store: str,
    corpus: str,
    options: CaptureOptions,
    time_limit: int,
    clean_cache: bool = False,
    on_done: Callable[[], None] = lambda: None,
) -> tuple[list[IngestResult], dict[str, str]]:
    """Ingest checkpoints, each with a task of its own, within a flow.

    Args:
        checkpoints: Which ones.
        store: The store.
        corpus: Name of a corpus in it.
        options: How each is run and stored.
        time_limit: Seconds that one may take.
        clean_cache: Whether what was fetched of one is deleted once it is stored.
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
            lambda one=checkpoint: limited(
                store, one, corpus, options, clean_cache=clean_cache, return_state=True
            ),
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
    checkpoints, failures = _present(request)
    options = request.capture_options()
    if not request.ignore_space:
        refuse_what_does_not_fit(request.store, checkpoints, request.corpus, options)
    if request.workers > 1:
        results, failed = _ingest_side_by_side(request, checkpoints)
    else:
        results, failed = ingest_each(
            checkpoints,
            store=request.store,
            corpus=request.corpus,
            options=options,
            time_limit=request.time_limit,
            clean_cache=request.clean_cache,
        )
    raise_failures("checkpoints", failures | failed, len(failures) + len(checkpoints))
    return [asdict(result) for result in results]


def _present(request: IngestRequest) -> tuple[list[Checkpoint], dict[str, str]]:
    """Return the checkpoints that are there, and by name what is there instead of others."""
    checkpoints: list[Checkpoint] = []
    gaps: dict[str, str] = {}
    for source in request.models:
        found, absent = find_present(
            source,
            steps=request.steps,
            name=request.name,
            seed=request.seed,
            table=request.steps_table,
            trusted=request.trust_remote_code,
        )
        checkpoints += found
        gaps |= {gap.name: gap.problem for gap in absent}
    return checkpoints, gaps


def _ingest_side_by_side(
    request: IngestRequest, checkpoints: list[Checkpoint]
) -> tuple[list[IngestResult], dict[str, str]]:
    """Run checkpoints by several processes within one task."""
    rounds = -(-len(checkpoints) // request.workers)
    limited = ingest_side_by_side.with_options(timeout_seconds=rounds * request.time_limit)
    outcomes = limited(
        Sweep(
            request.store,
            checkpoints,
            request.corpus,
            request.capture_options(),
            request.clean_cache,
            request.workers,
        )
    )
    results = [outcome.result for outcome in outcomes if outcome.result is not None]
    return results, {one.name: one.problem for one in outcomes if one.result is None}
