"""A lab's training run watched for real: Prefect server, work pool, worker, and what goes wrong."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from store.catalogue import catalogue
from store.errors import UnknownNameError
from store.metrics import read_metrics
from store.repository import Repository
from store.verify import census

BIN = Path(sys.executable).parent
INTERVAL = 10
HOLD_LOCK = """
import sys, time, filelock
with filelock.FileLock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


class Lab:
    """Processes of a lab, started from nothing and killed at will."""

    def __init__(self, folder: Path, store: str, file: Path) -> None:
        self.folder, self.store, self.file = folder, store, file
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
        self.environment = inherited | {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            "ACTLAS_STORE": store,
            "ACTLAS_CACHE": str(folder / "cache"),
            "ACTLAS_CHECKPOINTS": str(folder / "tiny"),
            "ACTLAS_CORPUS": "cats",
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_API_URL": f"http://127.0.0.1:{self.port}/api",
            "PREFECT_SERVER_API_HOST": "127.0.0.1",
            "PREFECT_SERVER_API_PORT": str(self.port),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_UI_ENABLED": "false",
            "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "3",
            "PREFECT_SERVER_SERVICES_REPOSSESSOR_LOOP_SECONDS": "2",
            # As deploy/ has it, but for the least time that a lost run can hold its slot.
            "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": (
                "prefect.server.concurrency.lease_storage.filesystem"
            ),
            "PREFECT_SERVER_CONCURRENCY_INITIAL_DEPLOYMENT_LEASE_DURATION": "30",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "PREFECT_CLI_PROMPT": "false",
            "DO_NOT_TRACK": "1",
        }

    def ask(self, path: str, **body: object) -> list[dict[str, object]]:
        request = urllib.request.Request(
            f"{self.environment['PREFECT_API_URL']}{path}",
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.loads(answer.read())

    def start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def start_server(self) -> None:
        self.start("server", str(BIN / "prefect"), "server", "start")
        url = f"{self.environment['PREFECT_API_URL']}/health"

        def healthy() -> bool:
            with contextlib.suppress(OSError):
                return urllib.request.urlopen(url, timeout=5).status == 200
            return False

        self.wait(healthy, 120)

    def start_worker(self) -> None:
        options = ("--pool", "actlas", "--type", "process", "--install-policy", "never")
        self.start("worker", str(BIN / "prefect"), "worker", "start", *options)

    def actlas(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", "from flows.cli import main; main()", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def kill(self, *names: str) -> None:
        """End processes and all their children as a power cut does."""
        for name in names:
            process = self.running.pop(name)
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        child.kill()
            process.kill()
            process.wait()

    def flow_processes(self) -> list[psutil.Process]:
        worker = psutil.Process(self.running["worker"].pid)
        return [
            child for child in worker.children(recursive=True) if "flows.execute" in child.cmdline()
        ]

    def wait(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                logs = [f"{path.name}:\n{path.read_text()[-4000:]}" for path in self.logs()]
                pytest.fail("\n".join(["it did not happen in time", *logs]))
            time.sleep(0.2)

    def logs(self) -> Sequence[Path]:
        return sorted(self.folder.glob("*.log"))

    def hold_lock(self) -> None:
        """Have another process hold the store's lock, as a writer in the middle of a commit."""
        lock = Path(self.store) / ".actlas" / "branch.lock"
        self.running["holder"] = subprocess.Popen(
            [sys.executable, "-c", HOLD_LOCK, str(lock)], stdout=subprocess.PIPE
        )
        assert self.running["holder"].stdout.readline() == b"held\n"

    def is_ingesting(self, step: int) -> bool:
        name = {"like_": f"ingest tiny step {step}"}
        states = {"type": {"any_": ["RUNNING"]}}
        return bool(self.ask("/task_runs/filter", task_runs={"name": name, "state": states}))

    def crashed(self) -> int:
        states = {"state": {"type": {"any_": ["CRASHED"]}}}
        return len(self.ask("/flow_runs/filter", flow_runs=states))

    def measured(self) -> list[int]:
        with contextlib.suppress(UnknownNameError):
            results = read_metrics(Repository.open(self.store), "cats/tiny")
            return [] if results is None else [int(step) for step in results.step.values]
        return []


@pytest.fixture
def lab(tmp_path: Path, store: str) -> Iterator[Lab]:
    (tmp_path / "tiny").mkdir()
    text = (Path(__file__).parents[2] / "deploy" / "prefect.yaml").read_text()
    # As deployed, but oftener, and with fewer metrics.
    for usual, ours in (
        ("interval: 600", f"interval: {INTERVAL}"),
        ('corpus: "{{ $ACTLAS_CORPUS }}"', 'corpus: "{{ $ACTLAS_CORPUS }}"\n        settle: 0\n'
         "        metrics: [average_cosine]"),
    ):  # fmt: skip
        assert usual in text
        text = text.replace(usual, ours, 1)
    file = tmp_path / "prefect.yaml"
    file.write_text(text)
    lab = Lab(tmp_path, store, file)
    yield lab
    lab.kill(*lab.running)


@pytest.mark.slow
def test_a_watched_run_survives_whatever_is_killed(lab: Lab, run_folder: Path) -> None:
    def appear(step: int) -> None:
        name = f"checkpoint-{step}"
        shutil.copytree(run_folder / name, lab.folder / "tiny" / name)

    lab.start_server()
    told = lab.actlas("flows", "deploy", "--file", str(lab.file))
    assert told.splitlines()[0] == "Made the work pool actlas"
    assert "Deployed watch/actlas" in told
    lab.start_worker()

    # A checkpoint that appears after the start is measured within two intervals, and the time
    # that two cores need to start processes.
    lab.wait(lambda: bool(lab.ask("/flow_runs/filter", limit=1)), 60)
    appear(0)
    lab.wait(lambda: lab.measured() == [0], 2 * INTERVAL + 60)

    # The process of a run is killed while another writer holds the lock.
    lab.hold_lock()
    appear(5)
    lab.wait(lambda: lab.is_ingesting(5), 90)
    for process in lab.flow_processes():
        process.send_signal(signal.SIGKILL)
    lab.wait(lambda: lab.crashed() == 1, 60)

    # The server is restarted while the next run is at work; the holder of the lock dies.
    lab.wait(lambda: lab.is_ingesting(5) and bool(lab.flow_processes()), 90)
    lab.kill("server", "holder")
    lab.start_server()
    lab.wait(lambda: lab.measured() == [0, 5], 90)

    # The machine is rebooted in the middle of a run, and all starts anew.
    lab.hold_lock()
    appear(10)
    lab.wait(lambda: lab.is_ingesting(10), 90)
    lab.kill("worker", "server", "holder")
    lab.start_server()
    lab.start_worker()
    lab.wait(lambda: lab.measured() == [0, 5, 10], 150)

    repository = Repository.open(lab.store)
    (model,) = catalogue(repository)
    assert [(step.step, step.complete) for step in model.steps] == [
        (0, True),
        (5, True),
        (10, True),
    ]
    assert census(repository) == []
    # Runs that met another one at work were not started at all.
    cancelled = {"state": {"type": {"any_": ["CANCELLED"]}}}
    assert lab.ask("/flow_runs/filter", flow_runs=cancelled)
    kinds = {str(artifact["key"]) for artifact in lab.ask("/artifacts/filter")}
    assert kinds >= {"actlas-progress", "actlas-ingested", "actlas-figures"}
    (automation,) = lab.ask("/automations/filter", automations={"name": {"like_": "heartbeat"}})
    assert automation["trigger"]["within"] == 120
