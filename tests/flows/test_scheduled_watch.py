"""A training run that is watched for real: Prefect server, work pool and worker on loopback.

Whatever is killed, every checkpoint ends up complete, once, and measured, and nobody does a thing.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.corpora import Chunking, add_texts
from flows.deployments import HEARTBEAT_SECONDS, HEARTBEATS_MISSED

sys.path.insert(0, str(Path(__file__).parent))

from lab import PATIENCE, Lab, Record

pytestmark = pytest.mark.slow

INTERVAL = 90
"""Seconds between two scheduled runs at first; afterwards they come oftener."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, text: str) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    (folder / "tiny").mkdir()
    store = str(folder / "store")
    add_texts(store, "cats", {"cats.txt": text}, chunking=Chunking("chars", 50), max_sequences=20)
    lab = Lab(folder, store)
    try:
        lab.start_server()
        told = lab.actlas("flows", "deploy", "--file", str(_deployments(folder)))
        assert told.splitlines()[0] == "Made the work pool actlas"
        assert "Deployed watch/actlas" in told
        assert "WARNING" not in told
        lab.start_worker()
        yield lab
    finally:
        lab.cut_power()


def _deployments(folder: Path) -> Path:
    """Return a file as it is deployed, but with runs that are oftener and do less."""
    text = (Path(__file__).parents[2] / "deploy" / "prefect.yaml").read_text()
    corpus = 'corpus: "{{ $ACTLAS_CORPUS }}"'
    for usual, ours in (
        ("interval: 600", f"interval: {INTERVAL}"),
        (corpus, f"{corpus}\n        settle: 0\n        metrics: [average_cosine]\n"
         f"        report: {folder}/report.html"),
    ):  # fmt: skip
        assert usual in text
        text = text.replace(usual, ours, 1)
    file = folder / "prefect.yaml"
    file.write_text(text)
    return file


def appear(lab: Lab, run_folder: Path, step: int) -> None:
    """Have a checkpoint be there at once, since a run may look while it is copied."""
    name = f"checkpoint-{step}"
    shutil.copytree(run_folder / name, lab.folder / "aside")
    (lab.folder / "aside").rename(lab.folder / "tiny" / name)


def test_what_appears_is_measured_and_shown_by_a_scheduled_run(lab: Lab, run_folder: Path) -> None:
    # Everything has been started, and the first run is under way or due.
    appear(lab, run_folder, 0)
    lab.wait(lambda: 0 in lab.measured(), 2 * INTERVAL)
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


@pytest.mark.crash
def test_whatever_is_killed_every_checkpoint_is_stored_once(lab: Lab, run_folder: Path) -> None:
    lab.look_oftener(10)
    lab.start_writer()
    appear(lab, run_folder, 5)
    lab.wait(lambda: lab.ingesting(5) == 1)
    # The process of a run: the worker sees it, and the next run takes over.
    lab.kill_runs()
    lab.wait(lambda: bool(lab.runs("CRASHED")))
    lab.wait(lambda: lab.ingesting(5) == 2)
    # The machine, with everything on it, the writer that held the lock of the store, too.
    lab.cut_power()
    lab.start_writer()
    lab.start_server()
    lab.start_worker()
    lab.wait(lambda: lab.ingesting(5) == 3)
    # The worker alone, whose run goes on, the server, and the writer.
    lab.kill("worker", "server", "writer")
    lab.start_server()
    lab.start_worker()
    lab.wait(lambda: 5 in lab.measured())
    assert 5 in lab.held()
    # Runs that met another one at work were not started at all.
    assert lab.runs("CANCELLED")
    # The run whose machine went down sends no heartbeats, and is given up.
    silence = HEARTBEATS_MISSED * HEARTBEAT_SECONDS
    lab.wait(lambda: any(_is_given_up(run) for run in lab.runs("CRASHED")), silence + PATIENCE)


def _is_given_up(run: Record) -> bool:
    return "No heartbeat" in str(run["state"])


def test_an_announcement_starts_a_run(lab: Lab, run_folder: Path) -> None:
    lab.actlas("notify", str(run_folder / "checkpoint-10"))

    def started() -> bool:
        creators = (run["created_by"] for run in lab.ask("/flow_runs/filter"))
        return any(creator and creator["type"] == "AUTOMATION" for creator in creators)

    lab.wait(started)
