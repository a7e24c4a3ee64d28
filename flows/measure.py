"""The Prefect flow ``measure``: one task a model; a failing one does not stop the others."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from pydantic import BaseModel, ConfigDict, Field

from analysis.compute import MeasureReport
from flows.failures import is_worth_retrying, raise_failures
from flows.measurement import MeasureOptions, Target, find_targets, measure_target
from store.repository import Repository

if TYPE_CHECKING:
    from prefect.tasks import Task


class MeasureRequest(BaseModel):
    """What to measure; the fields of the form that Prefect shows for a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    store: str = Field(default="./activations", description="The activation store, a path or URI.")
    corpus: str | None = Field(default=None, description="Only this corpus; every one when empty.")
    models: list[str] | None = Field(
        default=None, description="Only these models, by the names `actlas ls` shows."
    )
    metrics: list[str] | None = Field(default=None, description="Metrics; all when empty.")
    populations: list[str] | None = Field(
        default=None, description="Rows measured: all, content, typical, unit; all four when empty."
    )
    steps: list[int] | None = Field(default=None, description="Training steps; all when empty.")
    layers: list[int] | None = Field(default=None, description="Layers; all when empty.")
    sample: int = Field(
        default=10_000, ge=10, description="Tokens among which neighbours are sought."
    )
    seed: int = Field(default=0, description="Seed of that sample.")
    scheduler: str = Field(
        default="threads", description="Where Dask runs: threads, or the address of a scheduler."
    )

    def options(self) -> MeasureOptions:
        """Return what to measure of each model and how."""
        return MeasureOptions(
            metrics=None if self.metrics is None else tuple(self.metrics),
            populations=None if self.populations is None else tuple(self.populations),
            sample=self.sample,
            seed=self.seed,
            scheduler=self.scheduler,
        )


def _retry(_task: Task[..., object], _run: TaskRun, state: State[object]) -> bool:
    return is_worth_retrying(state.data)


@task(
    task_run_name="measure {target.model.path}",
    retries=2,
    retry_delay_seconds=[30, 120],
    retry_condition_fn=_retry,
    timeout_seconds=6 * 3600,
    cache_policy=NO_CACHE,
    persist_result=False,
)
def measure_one(store: str, target: Target, options: MeasureOptions) -> MeasureReport:
    """Compute what is missing or stale of one model's metrics."""
    return measure_target(store, target, options=options)


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
    logger = get_run_logger()
    targets = find_targets(
        Repository.open(request.store),
        corpus=request.corpus,
        models=request.models,
        steps=request.steps,
        layers=request.layers,
    )
    reports: list[dict[str, object]] = []
    failures: dict[str, str] = {}
    for target in targets:
        path = target.model.path
        state = measure_one(request.store, target, request.options(), return_state=True)
        outcome = state.result(raise_on_failure=False)
        if isinstance(outcome, MeasureReport):
            reports.append(asdict(outcome))
            logger.info(
                "%s: %d computed, %d up to date", path, outcome.computed, outcome.up_to_date
            )
        else:
            failures[path] = str(outcome)
            logger.error("%s failed: %s", path, outcome)
    raise_failures("models", failures, len(targets))
    return reports
