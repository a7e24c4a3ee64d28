"""Sweeps over checkpoints of the Hub, from the list of revisions to the store."""

# ruff: noqa: F811 - fixtures are arguments of the same name
from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from flows.capture import find_checkpoints, fingerprint
from flows.capture.errors import CheckpointError
from flows.capture.steps import read_steps_table
from flows.cli import actlas
from flows.corpora import add_ids
from flows.running import CaptureOptions
from flows.sweep import Outcome, Sweep, ingest_sweep
from store import open_metrics, open_store

sys.path.insert(0, str(Path(__file__).parent))

from hub_server import REPO, Fault, Hub, folders, gets, served  # noqa: F401 - fixtures


@pytest.fixture
def ids_store(tmp_path: Path) -> str:
    """Return a store with four sequences of ids."""
    uri = str(tmp_path / "store")
    add_ids(uri, "ids", list(np.random.default_rng(0).integers(3, 90, (4, 6))))
    return uri


def weights_in(cache: Path) -> int:
    """Count the weight files that lie in the cache of the Hub's client."""
    found = {file.resolve() for file in cache.rglob("model.safetensors") if file.exists()}
    return len(found)


def swept(sweep: Sweep, watch: Callable[[], None] = lambda: None) -> list[Outcome]:
    @contextmanager
    def report(name: str) -> Iterator[Callable[[int, int], None]]:
        yield lambda done, total: watch()

    return list(ingest_sweep(sweep, report))


def test_a_sweep_needs_the_disk_of_two(served: Hub, ids_store: str, tmp_path: Path) -> None:
    held: list[int] = []
    sweep = Sweep(
        ids_store, find_checkpoints(f"{REPO}@all"), "ids", CaptureOptions(), clean_cache=True
    )
    outcomes = swept(sweep, lambda: held.append(weights_in(tmp_path / "cache")))
    assert [one.result.ingested for one in outcomes if one.result] == [True, True]
    assert 1 <= max(held) <= 2
    assert weights_in(tmp_path / "cache") == 0
    before = len(gets(served, "model.safetensors"))
    outcomes = swept(sweep)
    assert [one.result.ingested for one in outcomes if one.result] == [False, False]
    assert len(gets(served, "model.safetensors")) == before


def test_a_sweep_goes_on_after_a_gap(served: Hub, ids_store: str) -> None:
    for name in ("step0", "notes"):  # one commit
        del served.refs[REPO][name].files["model.safetensors"]
    sweep = Sweep(ids_store, find_checkpoints(f"{REPO}@all"), "ids", CaptureOptions())
    gone, there = swept(sweep)
    assert gone.result is None
    assert "lab/tiny-neox@step0 holds no weights" in gone.problem
    assert there.result is not None
    assert there.result.ingested


def test_a_network_lost_half_way_fails_what_it_has_to(served: Hub, ids_store: str) -> None:
    checkpoints = find_checkpoints(f"{REPO}@all")
    fingerprint(checkpoints[1])
    served.faults = [Fault(f"/resolve/{checkpoints[1].revision}/model", times=99, status=503)]
    there, lost = swept(Sweep(ids_store, checkpoints, "ids", CaptureOptions()))
    assert there.result is not None
    assert there.result.ingested
    assert lost.result is None
    assert "cannot be read from the Hub" in lost.problem or "cannot be reached" in lost.problem
    served.faults = []
    again = swept(Sweep(ids_store, checkpoints, "ids", CaptureOptions()))
    assert [one.result.ingested for one in again if one.result] == [False, True]


def test_revisions_are_watched_as_they_appear(
    served: Hub, ids_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACTLAS_CACHE", str(tmp_path / "digests"))
    later = served.refs[REPO].pop("step1000-tokens4B")
    arguments = ["watch", REPO, "--corpus", "ids", "--store", ids_store, "--once", "--json"]

    def look() -> dict[str, object]:
        done = CliRunner().invoke(actlas, [*arguments, "--metrics", "average_cosine"])
        assert done.exit_code == 0, done.output
        *_, told = map(json.loads, done.stdout.splitlines())
        return {name: told[name] for name in ("event", "held", "ingested", "failed")}

    assert look() == {"event": "round", "held": 1, "ingested": 1, "failed": 0}
    served.refs[REPO]["step1000-tokens4B"] = later
    assert look() == {"event": "round", "held": 2, "ingested": 1, "failed": 0}
    fetched = len(gets(served, "model.safetensors"))
    assert look() == {"event": "round", "held": 2, "ingested": 0, "failed": 0}
    assert len(gets(served, "model.safetensors")) == fetched
    stored = open_metrics(ids_store, corpus="ids").average_cosine
    assert list(stored.step.values) == [0, 1000]
    assert stored.notnull().all()


def test_repositories_are_steps_of_one_model(
    served: Hub, ids_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["ingest", "lab/multi-seed_0-step_20k", "lab/multi-seed_0-step_40k"]
    arguments += ["--corpus", "ids", "--store", ids_store]
    done = CliRunner().invoke(actlas, arguments)
    assert done.exit_code == 0, done.output
    assert list(open_store(ids_store)["ids/lab--multi-seed_0"].step.values) == [20_000, 40_000]


def test_a_table_gives_steps_to_names_that_speak_of_none(served: Hub, tmp_path: Path) -> None:
    file = tmp_path / "steps.txt"
    file.write_text("# name step\nnotes, 7\nmain\t143000  # the last\nlab/plain 5\nstep0 1\n")
    table = read_steps_table(file)
    found = find_checkpoints(f"{REPO}@all", table=table)
    assert [(c.step, c.hub.name) for c in found if c.hub] == [
        (1, "step0"),
        (7, "notes"),
        (1000, "step1000-tokens4B"),
        (143_000, "main"),
    ]
    assert find_checkpoints("lab/plain", table=table)[0].step == 5
    assert find_checkpoints(f"{REPO}@notes", table=table)[0].step == 7
    for text, problem in (("a b", "line 1: expected a name"), ("a 1\na 2", "line 2: a is there")):
        file.write_text(text)
        with pytest.raises(CheckpointError, match=problem):
            read_steps_table(file)
