"""Telling the Prefect server that a checkpoint is whole, so that it is ingested at once."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from prefect.client.orchestration import SyncPrefectClient
from prefect.events import Event, Resource
from prefect.exceptions import ObjectNotFound

from flows.capture.checkpoints import Checkpoint, find_checkpoints
from flows.capture.errors import CheckpointError
from flows.failures import ServerError
from flows.prefect_api import prefect_client
from flows.survey import name_of
from store.errors import suggest

CHECKPOINT_AVAILABLE: Final = "actlas.checkpoint.available"
"""Name of the event; deploy/prefect.yaml has a trigger that waits for it."""


def notify(source: str) -> None:
    """Emit the event that a checkpoint is whole; deployments may be triggered by it.

    Args:
        source: Folder of the checkpoint.

    Raises:
        CheckpointError: If there is no checkpoint, or more than one.
        ServerError: If no server is set, or it does not answer.
    """
    checkpoint = _only(source)
    event = Event(
        event=CHECKPOINT_AVAILABLE,
        resource=Resource(
            {
                "prefect.resource.id": f"actlas.checkpoint.{checkpoint.model}.{checkpoint.step}",
                "prefect.resource.name": name_of(checkpoint),
            }
        ),
        payload={
            "path": _absolute(source),
            "model": checkpoint.model,
            "step": checkpoint.step,
        },
    )
    with prefect_client() as client:
        # Emitted in the background, it could be lost with a training script that ends here.
        client.request("POST", "/events", json=[event.model_dump(mode="json")])


def start_deployment(source: str, deployment: str) -> str:
    """Start a run of a deployment of the flow ``watch`` for one checkpoint alone.

    Args:
        source: Folder of the checkpoint.
        deployment: ``FLOW/DEPLOYMENT``; its parameters hold, but for its ``sources``.

    Returns:
        Name of the run.

    Raises:
        CheckpointError: If there is no checkpoint, or more than one.
        ServerError: If no server is set, it does not answer, or has no such deployment.
    """
    _only(source)
    with prefect_client() as client:
        try:
            found = client.read_deployment_by_name(deployment)
        except (ObjectNotFound, ValueError) as error:
            raise ServerError(
                f"no deployment {deployment!r} on the Prefect server"
                f"{suggest(deployment, _deployments(client))}"
            ) from error
        request = dict(found.parameters.get("request", {})) | {"sources": [_absolute(source)]}
        run = client.create_flow_run_from_deployment(
            found.id, parameters={**found.parameters, "request": request}
        )
        return run.name


def _only(source: str) -> Checkpoint:
    found = find_checkpoints(source)
    if len(found) != 1:
        steps = ", ".join(str(one.step) for one in found)
        raise CheckpointError(f"{source} holds the steps {steps}: name the folder of one of them")
    return found[0]


def _absolute(source: str) -> str:
    path = Path(source).expanduser()
    return str(path.resolve()) if path.exists() else source


def _deployments(client: SyncPrefectClient) -> list[str]:
    flows = {flow.id: flow.name for flow in client.read_flows()}
    return [f"{flows.get(one.flow_id, '?')}/{one.name}" for one in client.read_deployments()]
