"""A lab that watches a training run: Prefect server, work pool and worker, killed at will.

All listen on loopback, at ports found free, with everything they keep below one folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from store.catalogue import catalogue
from store.errors import UnknownNameError
from store.metrics import read_metrics
from store.repository import Repository
from store.verify import census

BIN = Path(sys.executable).parent
ACTLAS = (sys.executable, "-c", "from flows.cli import main; main()")
PATIENCE = 240
"""Seconds after which what has not happened never will, on a machine that does much else."""

WRITER = """
import sys, time
from store.repository import Repository
def change(root):
    root.create_group("half-made")
    print("holds the lock", flush=True)
    time.sleep(3600)
Repository.open(sys.argv[1]).update("never finished", change)
"""

Record = dict[str, object]


class Lab:
    """What a lab runs, started from nothing.

    Attributes:
        folder: Where everything is.
        store: The store.
        server: The command that starts the server.
        worker: The command that starts a worker.
        running: Processes by name.
    """

    def __init__(self, folder: Path, store: str, *, server: list[str], worker: list[str]) -> None:
        self.folder, self.store = folder, store
        self.server, self.worker = server, worker
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.api = f"http://127.0.0.1:{port}/api"
        inherited = {
            k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "ACTLAS"))
        }
        self.environment = inherited | {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(sys.path),
            "OMP_NUM_THREADS": "1",
            "ACTLAS_STORE": store,
            "ACTLAS_CACHE": str(folder / "cache"),
            "ACTLAS_CHECKPOINTS": str(folder / "tiny"),
            "ACTLAS_CORPUS": "cats",
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_API_URL": self.api,
            "PREFECT_SERVER_API_HOST": "127.0.0.1",
            "PREFECT_SERVER_API_PORT": str(port),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_UI_ENABLED": "false",
            # A hundred runs beforehand would be written anew whenever a schedule changes.
            "PREFECT_SERVER_SERVICES_SCHEDULER_MAX_RUNS": "4",
            "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "2",
            "PREFECT_SERVER_SERVICES_REPOSSESSOR_LOOP_SECONDS": "2",
            # What a run holds from the moment that a worker takes it is left at its five minutes:
            # within less, the imports of a busy machine outlast it, the next run takes the slot,
            # and so on, so that none ever begins.
            "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "PREFECT_CLI_PROMPT": "false",
            "DO_NOT_TRACK": "1",
        }

    # What a lab does.

    def start(self, name: str, *command: str) -> None:
        """Start a process that dies with the tests, whatever becomes of them."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                command,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    def start_server(self) -> None:
        self.start("server", *self.server)

        def healthy() -> bool:
            with contextlib.suppress(OSError):
                return urllib.request.urlopen(f"{self.api}/health", timeout=5).status == 200
            return False

        self.wait(healthy)

    def start_worker(self) -> None:
        """Start a worker, and wait until it asks for work."""
        log = self.folder / "worker.log"
        before = log.read_text().count("started!") if log.exists() else 0
        self.start("worker", *self.worker, "--install-policy", "never")
        self.wait(lambda: log.read_text().count("started!") > before)

    def start_actlas(self, name: str, *arguments: str) -> None:
        self.start(name, *ACTLAS, *arguments)

    def actlas(self, *arguments: str) -> str:
        done = subprocess.run(
            [*ACTLAS, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def kill(self, *names: str) -> None:
        """End processes as ``kill -9`` does, each alone: what they started goes on."""
        for name in names:
            process = self.running.pop(name)
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def end(self, name: str) -> int:
        """End a process as a service manager does, and return its exit code."""
        process = self.running.pop(name)
        process.terminate()
        return process.wait(PATIENCE)

    def cut_power(self) -> None:
        """End everything at once, runs that outlived their worker, too."""
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.kill(*self.running)

    def kill_runs(self) -> None:
        """End the processes of runs alone."""
        runs = [p for p in self._processes() if "flows.execute" in p.info["cmdline"]]
        assert runs
        for process in runs:
            process.kill()

    def _processes(self) -> list[psutil.Process]:
        """Return every process that this lab started, and what those started."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            with contextlib.suppress(psutil.Error):
                if process.environ().get("ACTLAS_STORE") == self.store:
                    found.append(process)
        return found

    def start_writer(self) -> None:
        """Have a writer stand still within a commit, while it holds the lock of the store."""
        self.running["writer"] = subprocess.Popen(
            [sys.executable, "-c", WRITER, self.store],
            env=self.environment,
            stdout=subprocess.PIPE,
            preexec_fn=_die_with_parent,
        )
        assert self.running["writer"].stdout.readline() == b"holds the lock\n"

    # What one sees.

    def ask(self, path: str, **body: object) -> list[Record]:
        return json.loads(self._request("POST", path, body))

    def deployment(self, name: str) -> Record:
        """Return a deployment of the flow ``watch``."""
        return json.loads(self._request("GET", f"/deployments/name/watch/{name}"))

    def look_every(self, seconds: int) -> None:
        """Have runs be scheduled; the first is soon, but not past before it can be planned."""
        soon = (datetime.now(UTC) + timedelta(seconds=10)).isoformat()
        self._schedule(schedule={"interval": seconds, "anchor_date": soon}, active=True)

    def look_no_more(self) -> None:
        self._schedule(active=False)

    def _schedule(self, **changes: object) -> None:
        deployment = self.deployment("actlas")
        (schedule,) = deployment["schedules"]
        place = f"/deployments/{deployment['id']}/schedules/{schedule['id']}"
        self._request("PATCH", place, changes)

    def _request(self, method: str, path: str, body: object = None) -> bytes:
        request = urllib.request.Request(
            f"{self.api}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json"},
            method=method,
        )
        for _ in range(20):
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return answer.read()
            except urllib.error.HTTPError as error:
                if error.code != 503:
                    raise
                # SQLite is locked by another request: Prefect says to ask again.
                error.close()
                time.sleep(1)
        pytest.fail(f"the server is too busy to answer {path}")

    def wait(self, condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                logs = sorted(self.folder.glob("*.log"))
                told = [f"{path.name}:\n{path.read_text()[-4000:]}" for path in logs]
                pytest.fail("\n".join(["it did not happen in time", *told]))
            time.sleep(0.5)

    def runs(self, *states: str, deployment: str | None = None) -> list[Record]:
        """Return the runs that are in one of some states, the earliest first."""
        wanted = {"state": {"type": {"any_": list(states)}}}
        of = {} if deployment is None else {"deployments": {"name": {"any_": [deployment]}}}
        return self.ask("/flow_runs/filter", flow_runs=wanted, sort="EXPECTED_START_TIME_ASC", **of)

    def ingesting(self, step: int) -> int:
        """Return how many tasks began to store a step; those of killed runs stay as they were."""
        name = {"like_": f"ingest tiny step {step}"}
        states = {"type": {"any_": ["RUNNING"]}}
        return len(self.ask("/task_runs/filter", task_runs={"name": name, "state": states}))

    def held(self) -> list[int]:
        """Return the steps that are there, after making sure that all are whole and once there."""
        repository = Repository.open(self.store)
        assert census(repository) == []
        (model,) = catalogue(repository)
        assert all(step.complete for step in model.steps)
        return [step.step for step in model.steps]

    def measured(self) -> list[int]:
        with contextlib.suppress(UnknownNameError):
            results = read_metrics(Repository.open(self.store), "cats/tiny")
            return [] if results is None else [int(step) for step in results.step.values]
        return []


def _die_with_parent() -> None:
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
