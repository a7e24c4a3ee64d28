"""``actlas`` when one of several models fails, or when nobody reads what it prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows.failures import FlowError, raise_failures
from store.repository import Repository


def test_a_damaged_model_keeps_no_other_from_being_measured(run, run_folder: Path, damage) -> None:
    run("ingest", str(run_folder / "checkpoint-5"), "--corpus", "cats", "--name", "zebra")
    damage("residual/c/1/2/0/0")
    failed = run("compute", "svd_anisotropy", code=1)
    assert "cats/zebra: 12 values computed" in failed.stdout  # 3 layers, 4 populations
    assert "1 of 2 models failed, the others are done:\n  cats/tiny: " in failed.stderr
    assert "residual, step 10, layer 2" in failed.stderr
    again = run("compute", "svd_anisotropy", "--json", code=1)
    assert [report["path"] for report in json.loads(again.stdout)] == ["cats/zebra"]


def test_no_others_are_done_where_all_failed() -> None:
    with pytest.raises(FlowError, match=r"^2 of 2 models failed:\n  one: why\n  two: so$"):
        raise_failures("models", {"one": "why", "two": "so"}, 2)
    with pytest.raises(FlowError, match=r"^1 of 2 models failed, the others are done:\n  one: why"):
        raise_failures("models", {"one": "why"}, 2)


@pytest.mark.parametrize("sites", ["nonsense", "residual,nonsense", "module:", "module:a_checksum"])
@pytest.mark.parametrize("command", ["ingest", "ingest --plan", "watch --once"])
def test_a_name_of_no_site_is_refused_though_the_steps_are_stored(
    run, store: str, run_folder: Path, command: str, sites: str
) -> None:
    name, *rest = command.split()
    steps = ["--steps", "0,10"] if name == "ingest" else []
    before = Repository.open(store).snapshot_id()
    arguments = (name, str(run_folder), "--corpus", "cats", *steps, "--sites", sites, *rest)
    told = run(*arguments, code=2).stderr
    named = sites.split(",")[-1]
    assert told.startswith(f"Error: {named!r} is not a site, nor 'module:PATH' of a module; there")
    assert Repository.open(store).snapshot_id() == before


def test_a_reader_that_leaves_is_no_error(store: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", "from flows.cli import main; main()", "ls", "--store", store]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert done.returncode == 1
    assert done.stderr == ""
