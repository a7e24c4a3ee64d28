"""The Prefect flow ``measure``: one task a model; a failing one does not stop the others."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

from prefect import flow

from analysis.compute import MeasureReport
from flows.artifacts import dask_page, show_dask, show_measured, show_report
from flows.attempts import attempt_each, attempted
from flows.failures import raise_failures
from flows.measurement import MeasureOptions, Target, find_targets, measure_target
from flows.requests import MeasureRequest
from store.repository import Repository


@attempted("measure {target.model.path}")
def measure_one(
    store: str, target: Target, options: MeasureOptions, page: Path | None = None
) -> MeasureReport:
    """Compute what is missing or stale of one model's metrics; tell of Dask in a page."""
    from analysis.clusters import dask_report

    with nullcontext() if page is None else dask_report(page):
        return measure_target(store, target, options=options)


def measure_each(
    targets: Sequence[Target],
    *,
    store: str,
    options: MeasureOptions,
    time_limit: int,
    dask_pages: str | None = None,
) -> tuple[list[MeasureReport], dict[str, str]]:
    """Measure models, each with a task of its own, within a flow; show what was computed.

    Args:
        targets: The models.
        store: The store.
        options: What to measure of each and how.
        time_limit: Seconds that one may take.
        dask_pages: Folder for a page of Dask about each, None for none.

    Returns:
        What was measured, and why some models were not, by path.
    """
    limited = measure_one.with_options(timeout_seconds=time_limit)
    attempts = (
        (
            target.model.path,
            lambda one=target: limited(
                store, one, options, dask_page(dask_pages, one.model.path), return_state=True
            ),
        )
        for target in targets
    )
    reports, failures = attempt_each(attempts, MeasureReport, _told, time_limit=time_limit)
    if any(report.computed for report in reports):
        show_measured(reports, options.scheduler)
        show_dask(reports, dask_pages)
    return reports, failures


def _told(report: MeasureReport) -> str:
    return f"{report.computed} computed, {report.up_to_date} up to date"


@flow(name="measure", persist_result=False)
def measure(request: MeasureRequest) -> list[dict[str, object]]:
    """Compute the metrics of stored activations that are missing or stale.

    Args:
        request: What to measure.

    Returns:
        What became of each model, the fields of a ``MeasureReport``.

    Raises:
        UnknownNameError: If there is no such corpus, model, step or layer.
        FlowError: If models failed, at the end, naming them.
    """
    targets = find_targets(
        Repository.open(request.store),
        corpus=request.corpus,
        models=request.models,
        steps=request.steps,
        layers=request.layers,
    )
    reports, failures = measure_each(
        targets,
        store=request.store,
        options=request.measure_options(),
        time_limit=request.time_limit,
        dask_pages=request.dask_pages,
    )
    if any(report.computed for report in reports):
        show_report(request.store, request.report)
    raise_failures("models", failures, len(targets))
    return [asdict(report) for report in reports]
