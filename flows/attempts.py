"""What the tasks of all flows share: retries, time limits, and going on after a failure."""

from __future__ import annotations

import faulthandler
import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, ParamSpec, TypeVar

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.tasks import Task

from flows.failures import is_worth_retrying
from flows.logs import LOGGER

P = ParamSpec("P")
Outcome = TypeVar("Outcome")

GRACE_SECONDS: Final = 60
"""Time that a task has between its own time-out and the end of its process."""

# Records of plain functions reach Prefect through PREFECT_LOGGING_EXTRA_LOGGERS from this level on.
logging.getLogger(LOGGER).setLevel(logging.INFO)


def _retry(_task: Task[..., object], _run: TaskRun, state: State[object]) -> bool:
    return is_worth_retrying(state.data)


def attempted(run_name: str) -> Callable[[Callable[P, Outcome]], Task[P, Outcome]]:
    """Make a task that is tried again where that may help; the store knows what is done.

    Results are never cached or kept by Prefect, which cannot know what became of the store.

    Args:
        run_name: Name of its runs, with the task's parameters in braces.
    """
    return task(
        task_run_name=run_name,
        retries=2,
        retry_delay_seconds=[30, 120],
        retry_condition_fn=_retry,
        cache_policy=NO_CACHE,
        persist_result=False,
    )


def attempt_each(
    attempts: Iterable[tuple[str, Callable[[], State[Outcome]]]],
    kind: type[Outcome],
    told: Callable[[Outcome], str],
    *,
    time_limit: int,
    on_done: Callable[[], None] = lambda: None,
) -> tuple[list[Outcome], dict[str, str]]:
    """Run tasks one after another; one that fails stops no other.

    Args:
        attempts: Name of each, and what runs its task and returns the state.
        kind: What a task returns when it succeeds.
        told: Says in a few words what came out.
        time_limit: Seconds that a task may take before it is interrupted.
        on_done: Called after each task.

    Returns:
        What came out, and why tasks failed, by name.
    """
    logger = get_run_logger()
    done: list[Outcome] = []
    failures: dict[str, str] = {}
    for name, attempt in attempts:
        with _process_ended_after(time_limit + GRACE_SECONDS):
            outcome = attempt().result(raise_on_failure=False)
        if isinstance(outcome, kind):
            done.append(outcome)
            logger.info("%s: %s", name, told(outcome))
        else:
            failures[name] = str(outcome) or type(outcome).__name__
            logger.error("%s failed: %s", name, failures[name])
        on_done()
    return done, failures


@contextmanager
def _process_ended_after(seconds: float) -> Iterator[None]:
    """End the whole process when the block takes too long, and show where it was.

    Prefect's own time-outs interrupt Python code alone: a loop in compiled code, or a thread that
    hangs, would hold the deployment's only slot for ever. The store is sound all the same.
    """
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__ or sys.stderr)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
