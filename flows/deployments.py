"""Deployments: checked against the flows that they run, registered, and watched over."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import yaml
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.exceptions import (
    ObjectNotFound,
    ParameterBindError,
    ParameterTypeError,
    SignatureMismatchError,
)
from prefect.flows import Flow, load_flow_from_entrypoint
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from flows.failures import ServerError
from flows.prefect_api import prefect_client

HEARTBEAT_AUTOMATION: Final = "actlas: runs without a heartbeat have crashed"
HEARTBEAT_SECONDS: Final = 30
"""Time between two heartbeats of a run, which deploy/prefect.yaml sets for its processes."""

TAG: Final = "actlas"
"""Tag of the deployments whose runs are watched over."""

HEARTBEATS_MISSED: Final = 4
"""Heartbeats that may be missed; with fewer than three, runs that go on are given up."""

MEMORY_LEASES: Final = (
    "the server keeps in memory who runs what. Restarted, it can hold the only slot of a"
    " deployment for ever, and cancel every later run: start it with"
    " PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE=prefect.server.concurrency.lease_storage.filesystem"
)
_MEMORY: Final = "prefect.server.concurrency.lease_storage.memory"

_VARIABLE: Final = re.compile(r"\{\{\s*\$(\w+)\s*\}\}")


class _WorkPool(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    job_variables: dict[str, object] = Field(default_factory=dict)


class Deployment(BaseModel):
    """A deployment as a file describes it, as far as Prefect does not check it itself."""

    name: str
    entrypoint: str
    parameters: dict[str, object] = Field(default_factory=dict)
    work_pool: _WorkPool


class _Described(BaseModel):
    deployments: list[Deployment] = Field(min_length=1)


def read_deployments(file: Path) -> list[Deployment]:
    """Read the deployments of a ``prefect.yaml``, and check that each can run.

    Prefect takes parameters of any name; a run then fails, and so does every later one.

    Args:
        file: The file; ``{{ $NAME }}`` in it stands for an environment variable.

    Raises:
        ServerError: If the file cannot be read, names a flow that there is not, gives it
            parameters that it does not take, or a variable is not set.
    """
    try:
        text = _substituted(file.read_text(encoding="utf-8"), file)
        described = _Described.model_validate(yaml.safe_load(text))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise ServerError(f"{file} does not describe deployments: {error}") from error
    for deployment in described.deployments:
        _check(deployment, file)
    return described.deployments


def _substituted(text: str, file: Path) -> str:
    unset = sorted({name for name in _VARIABLE.findall(text) if name not in os.environ})
    if unset:
        raise ServerError(f"{file} needs {', '.join(unset)} in the environment")
    return _VARIABLE.sub(lambda match: os.environ[match[1]], text)


def _check(deployment: Deployment, file: Path) -> None:
    where = f"{file}: deployment {deployment.name}"
    try:
        flow: Flow[..., object] = load_flow_from_entrypoint(
            deployment.entrypoint, use_placeholder_flow=False
        )
    except Exception as error:
        raise ServerError(f"{where}: no flow {deployment.entrypoint} ({error})") from error
    try:
        flow.validate_parameters(deployment.parameters)
    except (ParameterBindError, ParameterTypeError, SignatureMismatchError) as error:
        raise ServerError(f"{where}: {flow.name} does not take its parameters: {error}") from error


def deploy(file: Path) -> Iterator[str]:
    """Register the deployments of a file, their work pools, and the watch over heartbeats.

    Doing it again changes what has changed.

    Args:
        file: A ``prefect.yaml``.

    Yields:
        A line about each thing done.

    Raises:
        ServerError: If a deployment cannot work, or the server refuses it or does not answer.
    """
    described = read_deployments(file)
    with prefect_client() as client:
        for pool in sorted({one.work_pool.name for one in described}):
            if _create_pool(client, pool):
                yield f"Made the work pool {pool}"
        for warning in prepare_server(client):
            yield f"WARNING: {warning}"
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
    done = subprocess.run(  # noqa: S603  # no shell; the file is one argument
        [*command, "--prefect-file", str(file)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ServerError(f"Prefect refuses {file}:\n{done.stdout}{done.stderr}")
    for one in described:
        yield f"Deployed {one.entrypoint.rpartition(':')[2]}/{one.name}"


def _create_pool(client: SyncPrefectClient, name: str) -> bool:
    try:
        client.read_work_pool(name)
    except ObjectNotFound:
        client.create_work_pool(WorkPoolCreate(name=name, type="process"))
        return True
    return False


def prepare_server(client: SyncPrefectClient) -> Iterator[str]:
    """Have a server give up runs that have died.

    Args:
        client: A client of the server.

    Yields:
        What a person should set right about the server.
    """
    _watch_heartbeats(client)
    if _keeps_leases_in_memory(client):
        yield MEMORY_LEASES


def _keeps_leases_in_memory(client: SyncPrefectClient) -> bool:
    settings = client.request("GET", "/admin/settings").json()
    return bool(settings["server"]["concurrency"]["lease_storage"] == _MEMORY)


def _watch_heartbeats(client: SyncPrefectClient) -> None:
    """Have runs whose process or machine has died marked as crashed, so that their slot is free."""
    automation = AutomationCore(
        name=HEARTBEAT_AUTOMATION,
        trigger=EventTrigger(
            after={"prefect.flow-run.heartbeat"},
            expect={
                "prefect.flow-run.heartbeat",
                "prefect.flow-run.Completed",
                "prefect.flow-run.Failed",
                "prefect.flow-run.Cancelled",
                "prefect.flow-run.Crashed",
            },
            match={"prefect.resource.id": ["prefect.flow-run.*"]},
            # Other flows of the server have heartbeats of their own, or none.
            match_related={
                "prefect.resource.role": ["tag"],
                "prefect.resource.id": [f"prefect.tag.{TAG}"],
            },
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=HEARTBEATS_MISSED * HEARTBEAT_SECONDS),
        ),
        actions=[
            ChangeFlowRunState(
                name=None,
                force=False,
                state=StateType.CRASHED,
                message="No heartbeat: its process or machine has died.",
            )
        ],
    )
    for found in client.read_automations_by_name(HEARTBEAT_AUTOMATION):
        client.delete_automation(found.id)
    client.create_automation(automation)
