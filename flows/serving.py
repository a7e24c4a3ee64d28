"""A schedule for the flow ``watch`` that lives in this process, without a work pool."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Final, cast

from prefect import serve
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.deployments.runner import RunnerDeployment
from prefect.events import DeploymentEventTrigger
from prefect.types.entrypoint import EntrypointType

from flows.console import say
from flows.deployments import HEARTBEAT_SECONDS, TAG, prepare_server
from flows.logs import LOGGER
from flows.notify import CHECKPOINT_AVAILABLE
from flows.prefect_api import prefect_client
from flows.requests import WatchRequest
from flows.watch import watch

NAME: Final = "served"

RUN_ENVIRONMENT: Final = {
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_SECONDS),
    "PREFECT_LOGGING_EXTRA_LOGGERS": LOGGER,
}
"""What processes of runs find in their environment, as deploy/prefect.yaml gives it to its own."""


def serve_watch(request: WatchRequest, *, every: timedelta) -> None:
    """Serve the flow until the process is told to end.

    Args:
        request: What each run watches.
        every: Time between runs; an announced checkpoint starts one at once.

    Raises:
        ServerError: If no server is set, or it does not answer.
    """
    with prefect_client() as client:
        for warning in prepare_server(client):
            say(f"WARNING: {warning}", err=True)
    os.environ.update(RUN_ENVIRONMENT)
    deployment = watch.to_deployment(
        name=NAME,
        tags=[TAG],
        interval=every,
        parameters={"request": request.model_dump()},
        triggers=[DeploymentEventTrigger(expect={CHECKPOINT_AVAILABLE})],
        concurrency_limit=ConcurrencyLimitConfig(
            limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW
        ),
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    # `watch.serve` would hand runs a pickled copy of the flow, in which the type of its parameter
    # is a name that means nothing: every run would fail. These import it.
    serve(cast("RunnerDeployment", deployment))
