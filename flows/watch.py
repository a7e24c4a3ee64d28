"""The Prefect flow ``watch``: what has appeared is ingested, measured and shown."""

from __future__ import annotations

import time
from dataclasses import asdict

from prefect import flow, get_run_logger

from flows.artifacts import (
    Progress,
    show_figures,
    show_ingested,
    show_report,
)
from flows.capture.digests import DigestCache
from flows.failures import raise_failures
from flows.ingest import ingest_each
from flows.measure import measure_each
from flows.measurement import Target, find_targets
from flows.requests import WatchRequest
from flows.survey import Survey, Watched, survey
from store.errors import UnknownNameError
from store.repository import Repository


@flow(name="watch", persist_result=False)
def watch(request: WatchRequest) -> list[dict[str, object]]:
    """Ingest and measure every checkpoint that has appeared and is whole.

    Args:
        request: What to watch.

    Returns:
        What became of each checkpoint that was missing, the fields of an ``IngestResult``.

    Raises:
        StoreError: If there is no store, or no such corpus in it.
        FlowError: If checkpoints or models failed, at the end, naming them.
    """
    found = _survey_at_rest(request)
    failures = dict(found.broken)
    with Progress(len(found.missing)) as progress:
        results, failed = ingest_each(
            list(found.missing),
            store=request.store,
            corpus=request.corpus,
            options=request.capture_options(),
            time_limit=request.time_limit,
            on_done=progress.advance,
        )
    failures |= failed
    targets = _targets(request, found) if request.measure else []
    reports, failed = measure_each(
        targets,
        store=request.store,
        options=request.measure_options(),
        time_limit=request.time_limit,
        dask_pages=request.dask_pages,
    )
    failures |= failed
    if results or failures:
        show_ingested(results, failures)
    if any(report.computed for report in reports):
        show_figures(request.store, request.corpus, found.models)
        show_report(request.store, request.report)
    raise_failures("checkpoints", failures, max(len(failures), len(found.missing)))
    return [asdict(result) for result in results]


def _survey_at_rest(request: WatchRequest) -> Survey:
    """Look at the sources; where something is still being written, wait for its rest once.

    An event announces a checkpoint the moment it is written.
    """
    watched = Watched(
        store=request.store,
        sources=tuple(request.sources),
        corpus=request.corpus,
        capture=request.capture_options(),
        settle=request.settle,
        trusted=request.trust_remote_code,
    )
    digest = DigestCache()
    found = survey(watched, digest)
    if found.unfinished:
        time.sleep(request.settle)
        found = survey(watched, digest)
    get_run_logger().info(
        "%d held, %d missing, %d being written, %d broken",
        found.held,
        len(found.missing),
        len(found.unfinished),
        len(found.broken),
    )
    return found


def _targets(request: WatchRequest, found: Survey) -> list[Target]:
    repository = Repository.open(request.store)
    targets: list[Target] = []
    for model in found.models:
        try:
            targets += find_targets(repository, corpus=request.corpus, models=[model])
        except UnknownNameError:
            continue  # None of its checkpoints could be stored.
    return targets
