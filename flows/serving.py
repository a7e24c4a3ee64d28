"""A schedule for the flow ``watch`` that lives in this process, without a work pool."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.events import DeploymentEventTrigger
from prefect.types.entrypoint import EntrypointType

from flows.notify import CHECKPOINT_AVAILABLE
from flows.requests import WatchRequest
from flows.watch import watch

NAME: Final = "served"


def serve_watch(request: WatchRequest, *, every: timedelta) -> None:
    """Serve the flow until the process is told to end.

    Args:
        request: What each run watches.
        every: Time between runs; an announced checkpoint starts one at once.
    """
    watch.serve(
        name=NAME,
        interval=every,
        parameters={"request": request.model_dump()},
        triggers=[DeploymentEventTrigger(expect={CHECKPOINT_AVAILABLE})],
        global_limit=ConcurrencyLimitConfig(
            limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW
        ),
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
