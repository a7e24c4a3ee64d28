from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from store.catalogue import catalogue
from store.repository import Repository
from store.verify import census

from .conftest import Run

ACTLAS = [sys.executable, "-c", "from flows.cli import main; main()"]


@pytest.fixture
def runs(tmp_path: Path, run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ACTLAS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "runs" / "tiny"
    shutil.copytree(run_folder, folder)
    return folder


def test_once(run: Run, runs: Path, tmp_path: Path, store: str) -> None:
    file = tmp_path / "actlas.prom"
    arguments = ("watch", str(runs), "--corpus", "cats", "--once", "--settle", "0s", "--json")
    done = run(*arguments, "--metrics", "average_cosine", "--prometheus", str(file))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["event"] for line in lines] == ["ingested", "measured", "round"]
    assert (lines[0]["path"], lines[0]["step"]) == ("cats/tiny", 5)
    assert (lines[2]["held"], lines[2]["failed"], lines[2]["level"]) == (3, 0, "info")
    figures = dict(re.findall(r"^(actlas_\S+) (\S+)$", file.read_text(), re.M))
    assert figures['actlas_steps{corpus="cats",model="tiny",stack=""}'] == "3"
    assert figures['actlas_source_newest_step{model="tiny"}'] == "10"
    assert figures["actlas_ingested_total"] == figures["actlas_rounds_total"] == "1"
    assert float(figures["actlas_ingested_bytes_total"]) == lines[0]["stored_bytes"]
    assert float(figures["actlas_last_clean_round_timestamp_seconds"]) > 1e9


def test_a_failure_ends_it_with_1_after_all_the_rest(run: Run, runs: Path, store: str) -> None:
    weights = runs / "checkpoint-0" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    arguments = ("watch", str(runs), "--corpus", "cats", "--once", "--settle", "0s")
    done = run(*arguments, "--metrics", "none", code=1)
    assert "ERROR tiny step 0 failed: " in done.stdout
    assert "1 of 3 checkpoints failed, the others are done:\n  tiny step 0: " in done.stderr
    (model,) = catalogue(Repository.open(store))
    assert [step.step for step in model.steps] == [0, 5, 10]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--corpus", "cts"], 2, "did you mean 'cats'"),
        (["--corpus", "cats", "--every", "ten"], 2, "is no time"),
        (["--corpus", "cats", "--every", "0s"], 2, "more than no time"),
    ],
)
def test_usage_errors(run: Run, runs: Path, arguments: list[str], code: int, message: str) -> None:
    assert message in run("watch", str(runs), *arguments, code=code).output


@pytest.mark.parametrize("more", [(), ("--once",)])
def test_a_source_that_is_not_there_is_told_once(
    run: Run, runs: Path, tmp_path: Path, more: tuple[str, ...]
) -> None:
    absent = str(tmp_path / "runs" / "none")
    told = run("watch", str(runs), absent, "--corpus", "cats", *more, code=2)
    assert told.stdout == ""
    assert told.stderr.count("does not exist") == 1
    assert "a run that is yet to begin needs its folder" in " ".join(told.stderr.split())


@pytest.mark.slow
def test_an_interrupted_watcher_leaves_a_sound_store(store: str, runs: Path) -> None:
    # SIGTERM is made to do what Ctrl-C does.
    arguments = ["watch", str(runs), "--corpus", "cats", "--settle", "0s", "--every", "1s"]
    process = subprocess.Popen(
        [*ACTLAS, *arguments, "--store", store, "--metrics", "average_cosine", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["event"] == "ingested"
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 0
    assert told == "Stopped. The store holds whole checkpoints only.\n"
    repository = Repository.open(store)
    assert census(repository) == []
    assert [step.complete for step in catalogue(repository)[0].steps] == [True, True, True]


def test_monitoring_prints_what_is_held_and_what_is_behind(run: Run, runs: Path) -> None:
    shown = run("monitor").stdout
    assert 'actlas_newest_step{corpus="cats",model="tiny",stack=""} 10\n' in shown
    assert "actlas_missing" not in shown
    (runs / "checkpoint-10" / "config.json").unlink()
    shown = run("monitor", str(runs), "--corpus", "cats").stdout
    assert "# TYPE actlas_missing gauge\nactlas_missing 0\n" in shown
    assert "actlas_unfinished 3\n" in shown  # they were copied just now
    assert run("monitor", str(runs), code=2).exit_code == 2
    assert "--every goes with" in run("monitor", "--every", "1m", code=2).output


def test_the_file_is_replaced_as_a_whole(run: Run, tmp_path: Path) -> None:
    run("monitor", "-o", str(tmp_path / "actlas.prom"))
    assert "actlas_steps{" in (tmp_path / "actlas.prom").read_text()
    assert [path.name for path in tmp_path.glob("*.prom*")] == ["actlas.prom"]
