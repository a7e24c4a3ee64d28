"""The Prefect flow ``ingest``: one task a checkpoint; a broken one does not stop the others."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from pydantic import BaseModel, ConfigDict, Field

# torch is imported with the flow and not by its first task: a time-out in the middle of that
# import would break it for every later task of the process.
import flows.capture.forward  # noqa: F401
from flows.capture.checkpoints import Checkpoint, find_checkpoints
from flows.failures import is_worth_retrying, raise_failures
from flows.ingestion import IngestResult, ingest_checkpoint
from flows.running import CaptureOptions

if TYPE_CHECKING:
    from prefect.tasks import Task


class IngestRequest(BaseModel):
    """What to ingest; the fields of the form that Prefect shows for a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    models: list[str] = Field(
        min_length=1,
        description="Folders of a checkpoint or of checkpoint-N folders, or random:CONFIG.",
    )
    corpus: str = Field(description="Name of a corpus in the store.")
    store: str = Field(default="./activations", description="The activation store, a path or URI.")
    steps: list[int] | None = Field(
        default=None, description="Training steps wanted; all that are found when empty."
    )
    sites: list[str] | None = Field(
        default=None, description="What to keep; residual and final_norm when empty."
    )
    device: str = Field(default="auto", description="A torch device, or auto for CUDA if any.")
    batch_tokens: int | None = Field(
        default=None, ge=1, le=1 << 20, description="Tokens of a batch; by the device when empty."
    )
    allow_nonfinite: bool = Field(
        default=False, description="Store NaN and infinity, counted, instead of refusing them."
    )
    supersede: bool = Field(
        default=False, description="Replace steps stored from other weights or other inputs."
    )

    def options(self) -> CaptureOptions:
        """Return how each checkpoint is run and stored."""
        return CaptureOptions(
            sites=None if self.sites is None else tuple(self.sites),
            device=self.device,
            batch_tokens=self.batch_tokens,
            allow_nonfinite=self.allow_nonfinite,
            supersede=self.supersede,
        )


def _retry(_task: Task[..., object], _run: TaskRun, state: State[object]) -> bool:
    return is_worth_retrying(state.data)


@task(
    task_run_name="ingest {checkpoint.model} step {checkpoint.step}",
    retries=2,
    retry_delay_seconds=[30, 120],
    retry_condition_fn=_retry,
    timeout_seconds=6 * 3600,
    cache_policy=NO_CACHE,
    persist_result=False,
)
def ingest_one(
    store: str, checkpoint: Checkpoint, corpus: str, options: CaptureOptions
) -> IngestResult:
    """Store one checkpoint, unless the store's catalogue has it."""
    return ingest_checkpoint(store, checkpoint, corpus, options=options)


@flow(name="ingest", persist_result=False)
def ingest(request: IngestRequest) -> list[dict[str, object]]:
    """Ingest every checkpoint of some models that the store does not hold yet.

    Args:
        request: What to ingest and where to.

    Returns:
        What became of each checkpoint, the fields of an ``IngestResult``.

    Raises:
        CheckpointError: If a source holds no checkpoint.
        FlowError: If checkpoints failed, at the end, naming them.
    """
    logger = get_run_logger()
    checkpoints = [
        checkpoint
        for source in request.models
        for checkpoint in find_checkpoints(source, steps=request.steps)
    ]
    results: list[dict[str, object]] = []
    failures: dict[str, str] = {}
    for checkpoint in checkpoints:
        name = f"{checkpoint.model} step {checkpoint.step}"
        state = ingest_one(
            request.store, checkpoint, request.corpus, request.options(), return_state=True
        )
        outcome = state.result(raise_on_failure=False)
        if isinstance(outcome, IngestResult):
            results.append(asdict(outcome))
            logger.info("%s: %s", name, "stored" if outcome.ingested else "was stored already")
        else:
            failures[name] = str(outcome)
            logger.error("%s failed: %s", name, outcome)
    raise_failures("checkpoints", failures, len(checkpoints))
    return results
