"""`actlas doctor`, completion, quiet, and being stopped: what people meet besides results."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

import flows.doctor
from flows.cli import actlas
from flows.corpora import Chunking, add_texts
from store.catalogue import catalogue
from store.metrics import read_metrics
from store.repository import Repository
from store.verify import census


@pytest.fixture
def quick_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows.doctor, "PROBE_BYTES", 1 << 20)


@pytest.mark.usefixtures("quick_doctor")
def test_doctor_looks_at_everything(store: str) -> None:
    result = CliRunner().invoke(actlas, ["doctor", "--json", "--store", store])
    assert result.exit_code == 0, result.output
    found = {one["subject"]: one for one in json.loads(result.output)}
    assert list(found) == [
        "versions",
        "optional parts",
        "processor",
        "BLAS",
        "GPU",
        "disk",
        "environment",
        "store",
    ]
    assert "numpy" in found["versions"]["detail"]
    assert "models: 1, steps: 2" in found["store"]["detail"]
    assert list(Path(store).parent.glob("tmp*")) == []


@pytest.mark.usefixtures("quick_doctor")
def test_doctor_names_a_variable_that_nothing_reads(store: str) -> None:
    variables = {"ACTLAS_SHOW_STEP": "8", "ACTLAS_TRAIN_TINY_SEED": "1", "ACTLAS_CACHE": "/tmp"}
    arguments = ["doctor", "--json", "--store", store]
    result = CliRunner().invoke(actlas, arguments, env=variables)
    assert result.exit_code == 0, result.output
    (found,) = (one for one in json.loads(result.output) if one["subject"] == "environment")
    assert found["verdict"] == "notice"
    told = found["detail"].split("; ", 1)[1]
    assert (
        told
        == "nothing reads ACTLAS_SHOW_STEP: no 'STEP' after ACTLAS_SHOW_; did you mean 'STEPS'?"
    )


@pytest.mark.usefixtures("quick_doctor")
def test_doctor_fails_where_the_store_is_no_store(tmp_path: Path) -> None:
    absent = CliRunner().invoke(actlas, ["doctor", "--store", str(tmp_path / "none" / "yet")])
    assert absent.exit_code == 0
    assert "`actlas corpus add` makes one" in absent.output
    repository = Repository.create(tmp_path / "store")
    for file in Path(repository.uri).rglob("*"):
        if file.is_file() and file.parent.name == "snapshots":
            file.write_bytes(b"")
    broken = CliRunner().invoke(actlas, ["doctor", "--store", str(tmp_path / "store")])
    assert broken.exit_code == 1
    assert "bad" in broken.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_gives_a_script_of_the_shell(shell: str) -> None:
    script = CliRunner().invoke(actlas, ["completion", shell]).output
    assert f"_ACTLAS_COMPLETE={shell}_complete" in script


@pytest.mark.parametrize(
    ("typed", "completed"),
    [("actlas compute --sam", "--sample"), ("actlas show isosc", "isoscore")],
)
def test_a_shell_is_told_options_and_metrics(typed: str, completed: str) -> None:
    environment = os.environ | {
        "_ACTLAS_COMPLETE": "bash_complete",
        "COMP_WORDS": typed,
        "COMP_CWORD": "2",
    }
    command = [sys.executable, "-c", "from flows.cli import main; main()"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == f"plain,{completed}\n"


def test_quiet_leaves_results_alone(store: str, run_folder: Path) -> None:
    arguments = ["-q", "ingest", str(run_folder), "--corpus", "cats", "--store", store]
    assert CliRunner().invoke(actlas, [*arguments, "--steps", "0"]).output == ""
    assert CliRunner().invoke(actlas, ["-q", "ls", "--store", store]).output.startswith("model")


def test_stopped_while_ingesting_keeps_whole_steps(tmp_path: Path, run_folder: Path, text) -> None:
    """A real SIGINT after the first of three checkpoints."""
    uri = str(tmp_path / "store")
    add_texts(uri, "cats", {"cats.txt": text * 20}, chunking=Chunking("chars", 50))
    command = [sys.executable, "-uc", "from flows.cli import main; main()"]
    process = subprocess.Popen(
        [*command, "ingest", str(run_folder), "--corpus", "cats", "--store", uri],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "step 0: stored" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "Traceback" not in told
    assert re.search(
        r"stopped; 1 of 3 checkpoints are stored whole(, and nothing of tiny step 5)?; the same",
        told,
    )
    repository = Repository.open(uri)
    (model,) = catalogue(repository)
    assert [step.step for step in model.steps if step.complete] == [0]
    assert census(repository) == []
    again = CliRunner().invoke(
        actlas, ["ingest", str(run_folder), "--corpus", "cats", "--store", uri]
    )
    assert "2 of 3 checkpoints were run, 1 were there already" in again.output


def test_stopped_while_computing_keeps_what_was_computed(
    run, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def stopped_by_the_first_layer(_: str) -> Iterator[Callable[[int, int], None]]:
        def tell(more: int, total: int) -> None:
            raise KeyboardInterrupt

        yield tell

    with monkeypatch.context() as patched:
        patched.setattr("flows.cli.metrics.progress_bar", stopped_by_the_first_layer)
        told = run("compute", "stable_rank", code=1).output
    assert "stopped; the values computed by now are stored" in told
    repository = Repository.open(store)
    found = read_metrics(repository, "cats/tiny")
    assert found is not None
    kept = int(found["stable_rank"].notnull().sum())
    assert kept > 0
    assert census(repository) == []
    assert f"{kept} values up to date" in run("compute", "stable_rank").output


def test_a_study_that_is_stopped_says_what_is_kept(run, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("flows.studies.run.run_study", stopped)
    told = run("study", "shape-of-learning", code=1).output
    assert "stopped; what was stored and computed by now is kept" in told
