"""A training run that is watched for real: Prefect server, work pool and worker on loopback.

Whatever is killed, every checkpoint ends up complete, once, and measured, and nobody does a thing.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from flows.cli import actlas
from flows.corpora import Chunking, add_texts
from flows.deployments import HEARTBEAT_SECONDS, HEARTBEATS_MISSED
from flows.failures import FlowError
from store.metrics import read_metrics
from store.repository import Repository

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from documents import ROOT, pieces_of
from lab import BIN, PATIENCE, Lab, Record

pytestmark = [
    pytest.mark.slow(minutes=5),
    pytest.mark.filterwarnings("default:::prefect", "default:::websockets"),
]

INTERVAL = 60
"""Seconds between two scheduled runs."""


def shown(beginning: str) -> list[str]:
    """Return the words of the one documented line that begins so, behind what is set for it."""
    lines = [re.sub(r"^([A-Z_]+=\S+ )*", "", piece.text) for piece in pieces_of(__file__)]
    (line,) = (line for line in lines if line.startswith(beginning))
    program, *words = shlex.split(line)
    return [str(BIN / program) if program == "prefect" else program, *words]


def settings_shown() -> dict[str, str]:
    """Return the settings of all documented lines."""
    words = [word for piece in pieces_of(__file__) for word in shlex.split(piece.text)]
    return dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, text: str) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    (folder / "tiny").mkdir()
    store = str(folder / "store")
    add_texts(store, "cats", {"cats.txt": text}, chunking=Chunking("chars", 50), max_sequences=20)
    lab = Lab(
        folder,
        store,
        server=shown("prefect server start"),
        worker=shown("prefect worker start"),
    )
    lease = "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE"
    lab.environment[lease] = settings_shown()[lease]
    # The lab has other places and ports for the rest.
    assert settings_shown().keys() <= lab.environment.keys()
    try:
        lab.start_server()
        told = lab.actlas(*shown("actlas flows deploy")[1:], "--file", str(_deployments(folder)))
        assert told.splitlines()[0] == "Made the work pool actlas"
        assert "Deployed watch/actlas" in told
        assert "WARNING" not in told
        lab.start_worker()
        yield lab
    finally:
        lab.cut_power()


def _deployments(folder: Path) -> Path:
    """Return a file as it is deployed, but with runs that do less."""
    text = (Path(__file__).parents[2] / "deploy" / "prefect.yaml").read_text()
    corpus = 'corpus: "{{ $ACTLAS_CORPUS }}"'
    assert corpus in text
    less = f"settle: 0\n        metrics: [average_cosine]\n        report: {folder}/report.html"
    file = folder / "prefect.yaml"
    file.write_text(text.replace(corpus, f"{corpus}\n        {less}", 1))
    return file


def appear(lab: Lab, run_folder: Path, step: int) -> None:
    """Have a checkpoint be there at once, since a run may look while it is copied."""
    name = f"checkpoint-{step}"
    shutil.copytree(run_folder / name, lab.folder / "aside")
    (lab.folder / "aside").rename(lab.folder / "tiny" / name)


def test_what_appears_is_measured_and_shown_by_a_scheduled_run(lab: Lab, run_folder: Path) -> None:
    lab.look_every(INTERVAL)
    appear(lab, run_folder, 0)
    lab.wait(lambda: 0 in lab.measured(), 2 * INTERVAL)
    lab.look_no_more()
    assert 0 in lab.held()
    lab.wait(lambda: not lab.runs("PENDING", "RUNNING"))
    assert all(run["auto_scheduled"] for run in lab.runs("COMPLETED"))
    shown = {str(artifact["key"]): artifact for artifact in lab.ask("/artifacts/filter")}
    assert {key: artifact["type"] for key, artifact in shown.items()} == {
        "actlas-progress": "progress",
        "actlas-ingested": "table",
        "actlas-measured": "table",
        "actlas-figures": "image",
        "actlas-report": "markdown",
    }
    assert shown["actlas-progress"]["data"] == 100
    assert "cats/tiny step 0" in str(shown["actlas-ingested"]["data"])
    assert str(shown["actlas-figures"]["data"]).startswith("data:image/png;base64,")
    assert (lab.folder / "report.html").exists()


def test_a_process_that_serves_needs_no_worker(lab: Lab) -> None:
    ours = {"runs/my-model": str(lab.folder / "tiny"), "plays": "cats"}
    served = [ours.get(word, word) for word in shown("actlas flows serve")[1:]]
    often = ("--every", "10s", "--settle", "0s")
    lab.start_actlas("serve", *served, *often, "--metrics", "average_cosine")
    lab.wait(lambda: bool(lab.runs("COMPLETED", deployment="served")))
    assert lab.running["serve"].poll() is None
    (run, *_) = lab.runs("COMPLETED", deployment="served")
    assert run["auto_scheduled"]
    assert lab.end("serve") == 0
    assert lab.deployment("served")["paused"]


@contextmanager
def with_its_server(lab: Lab) -> Iterator[None]:
    """Have what runs in this process talk to the server of the lab."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: lab.api}):
        yield


def test_the_demo_in_small(
    lab: Lab, run_folder: Path, text: str, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    from flows.demo import __main__, materials, stages, trajectory

    plan = subprocess.run([*shown("make demo"), "-n"], cwd=ROOT, capture_output=True, text=True)
    # Within another make it also says which folder it enters and leaves.
    assert ".venv/bin/python -m flows.demo" in plan.stdout.splitlines()
    monkeypatch.chdir(lab.folder)
    monkeypatch.setattr(materials, "encoder_directory", lambda: run_folder / "checkpoint-0")
    monkeypatch.setattr(materials, "decoder_file", lambda: run_folder / "checkpoint-5")
    monkeypatch.setattr(materials, "plays", lambda: {"hamlet": text, "macbeth": 10 * text})
    monkeypatch.setattr(stages, "SEQUENCES", 4)
    monkeypatch.setattr(stages, "CHARACTERS", 60)
    monkeypatch.setattr(trajectory, "STEPS", (0, 1))
    monkeypatch.setattr(trajectory, "_prepare_prefect", lambda _: None)
    with with_its_server(lab):
        __main__.main()
        first = capsys.readouterr().out
        __main__.main()
    assert "demo/figures/depth.png   anisotropy and average cosine by depth" in first
    assert (lab.folder / "demo/figures/training.png").stat().st_size > 10_000
    assert "All of it was in the store from an earlier run: no model was run." in (
        capsys.readouterr().out
    )


def test_the_benchmark_of_overhead_prints_its_figures(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """Of work that takes no time, over threads that stand for a cluster: a flow is a flow."""
    from benchmarks import overhead

    monkeypatch.setattr("prefect.testing.utilities.prefect_test_harness", lambda **_: nullcontext())
    monkeypatch.setattr(overhead, "standing", lambda _: nullcontext("threads"))
    monkeypatch.setattr(overhead, "QUICK_UNITS", 2)
    monkeypatch.setattr(overhead, "ROWS", 64)
    monkeypatch.setattr(overhead, "WIDTH", 16)
    monkeypatch.setattr(overhead, "AIM_SECONDS", 1e-3)
    over_dask = overhead.over_dask
    monkeypatch.setattr(overhead, "over_dask", lambda units, n, _: over_dask(units, n, "threads"))
    _, script, *options = shown("python benchmarks/overhead.py")
    monkeypatch.setattr(sys, "argv", [script, *options, "--quick", "--workers", "1"])
    with with_its_server(lab):
        assert overhead.main() in (0, 1)
    assert "Prefect and Dask, a cluster that stands" in capsys.readouterr().out


@dataclass(frozen=True)
class Ran:
    """What the flows did on a run with one broken checkpoint of three."""

    store: str
    ingest_error: str
    again_error: str
    snapshots: tuple[str, str]
    reports: list[dict[str, object]]
    command: Result
    shown: list[tuple[str, str]]
    page: Path
    dask_page: Path


@pytest.fixture(scope="module")
def ran(lab: Lab, run_folder: Path, text: str) -> Ran:
    """Run the flows in this process, against the same server."""
    from flows.ingest import ingest
    from flows.measure import measure
    from flows.requests import IngestRequest, MeasureRequest

    folder = lab.folder / "by-hand"
    runs = folder / "tiny"
    shutil.copytree(run_folder, runs)
    weights = runs / "checkpoint-5" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    store = str(folder / "store")
    add_texts(store, "cats", {"cats.txt": text}, chunking=Chunking("chars", 50), max_sequences=20)
    request = IngestRequest(models=[str(runs)], corpus="cats", store=store)
    errors, snapshots = [], []
    with with_its_server(lab):
        for _ in range(2):
            with pytest.raises(FlowError) as raised:
                ingest(request)
            errors.append(str(raised.value))
            snapshots.append(Repository.open(store).snapshot_id())
        page, dask_pages = folder / "report.html", folder / "dask"
        asked = MeasureRequest(
            store=store,
            metrics=["average_cosine"],
            report=str(page),
            scheduler="local:1",
            dask_pages=str(dask_pages),
        )
        reports = measure(asked)
        look = ["flows", "run", str(runs), "--corpus", "cats", "--settle", "0s", "--store", store]
        command = CliRunner().invoke(actlas, [*look, "--metrics", "average_cosine"])
    shown = [(str(one["key"]), str(one["data"])) for one in lab.ask("/artifacts/filter")]
    dask_page = dask_pages / "dask-cats--tiny.html"
    return Ran(store, *errors, tuple(snapshots), reports, command, shown, page, dask_page)


def _shown(ran: Ran, key: str) -> list[str]:
    return [data for found, data in ran.shown if found == key]


def test_a_broken_checkpoint_is_named_and_stops_no_other(ran: Ran) -> None:
    assert "1 of 3 checkpoints failed" in ran.ingest_error
    assert "tiny step 5: " in ran.ingest_error
    assert "is truncated" in ran.ingest_error
    held = read_metrics(Repository.open(ran.store), "cats/tiny")
    assert held is not None
    assert list(held.step.values) == [0, 10]


def test_a_second_run_stores_nothing_new(ran: Ran) -> None:
    assert ran.again_error == ran.ingest_error
    assert ran.snapshots[0] == ran.snapshots[1]


def test_metrics_are_measured_by_a_flow(ran: Ran) -> None:
    assert [(report["path"], report["computed"]) for report in ran.reports] == [("cats/tiny", 24)]


def test_the_report_is_an_artifact_of_the_run(ran: Ran) -> None:
    assert any(f"({ran.page.as_uri()})" in data for data in _shown(ran, "actlas-report"))
    assert "average_cosine" in ran.page.read_text(encoding="utf-8")


def test_the_page_of_dask_is_an_artifact_of_the_run(ran: Ran) -> None:
    link = f"cats/tiny: [{ran.dask_page}]({ran.dask_page.as_uri()})"
    assert _shown(ran, "actlas-dask") == [f"- {link}"]
    assert "Task Stream" in ran.dask_page.read_text(encoding="utf-8")


def test_a_look_through_prefect_ends_as_any_command_does(ran: Ran) -> None:
    assert ran.command.exit_code == 1
    assert "Error: 1 of 1 checkpoints failed" in ran.command.stderr
    assert "tiny step 5: " in ran.command.stderr


def test_whatever_is_killed_every_checkpoint_is_stored_once(lab: Lab, run_folder: Path) -> None:
    lab.start_writer()
    appear(lab, run_folder, 5)
    # Nothing is scheduled: it is the announcement that starts a run.
    lab.actlas("notify", str(lab.folder / "tiny" / "checkpoint-5"))
    lab.wait(lambda: lab.ingesting(5) == 1)
    (announced,) = lab.runs("RUNNING")
    assert announced["created_by"]["type"] == "AUTOMATION"
    # The process of a run: the worker sees it, and the next run takes over.
    lab.look_every(15)
    lab.kill_runs()
    lab.wait(lambda: bool(lab.runs("CRASHED")))
    lab.wait(lambda: lab.ingesting(5) == 2)
    # The machine, with everything on it, the writer that held the lock of the store, too.
    lab.cut_power()
    lab.start_writer()
    lab.start_server()
    lab.start_worker()
    # The run whose machine went down sends no heartbeats, and is given up: another one may start.
    silence = HEARTBEATS_MISSED * HEARTBEAT_SECONDS
    lab.wait(lambda: any(_is_given_up(run) for run in lab.runs("CRASHED")), silence + PATIENCE)
    lab.wait(lambda: lab.ingesting(5) == 3)
    # The worker alone, whose run goes on, the server, and the writer.
    lab.kill("worker", "server", "writer")
    lab.start_server()
    lab.start_worker()
    lab.wait(lambda: 5 in lab.measured())
    assert lab.held() == [0, 5]
    # Runs that met another one at work were not started at all.
    assert lab.runs("CANCELLED")


def _is_given_up(run: Record) -> bool:
    return "No heartbeat" in str(run["state"])
