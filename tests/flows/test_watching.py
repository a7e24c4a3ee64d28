"""Watching without a server: what appears is stored and measured, whatever else goes on."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import flows.capture.digests as digests
import flows.watching as watching
from flows.capture.digests import DigestCache
from flows.capture.errors import CheckpointError
from flows.ingestion import ingest_checkpoint
from flows.measurement import MeasureOptions
from flows.running import CaptureOptions
from flows.survey import Watched, survey
from flows.watching import Round, Watcher, watch
from store.catalogue import catalogue
from store.errors import NonFiniteError, StepReservedError, StoreNotFoundError, UnknownNameError
from store.metrics import read_metrics
from store.repository import Repository
from store.verify import census

MEASURED = MeasureOptions(metrics=("average_cosine",), populations=("all",))


@pytest.fixture
def runs(tmp_path: Path, run_folder: Path) -> Path:
    """Return a copy of the training run, to be changed."""
    folder = tmp_path / "runs" / "tiny"
    shutil.copytree(run_folder, folder)
    return folder


@pytest.fixture
def watched(store: str, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Watch that run, without waiting for it to rest."""
    monkeypatch.setenv("ACTLAS_CACHE", str(tmp_path / "cache"))
    return Watched(store=store, sources=(str(runs),), corpus="cats", measure=MEASURED, settle=0)


@pytest.fixture
def ingested(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Steps whose ingestion was tried, in order."""
    steps: list[int] = []

    def counted(store: str, checkpoint, *arguments: object, **options: object):
        steps.append(checkpoint.step)
        return ingest_checkpoint(store, checkpoint, *arguments, **options)

    monkeypatch.setattr(watching, "ingest_checkpoint", counted)
    return steps


def held(store: str) -> list[int]:
    repository = Repository.open(store)
    assert census(repository) == []
    return [step.step for model in catalogue(repository) for step in model.steps if step.complete]


def break_off(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def test_what_appears_is_stored_and_measured_once(watched: Watched, runs: Path) -> None:
    aside = runs.parent / "aside"
    (runs / "checkpoint-10").rename(aside)
    watcher = Watcher(watched)
    first = watcher.round()
    assert [result.step for result in first.ingested] == [0, 5]
    assert first.measured[0].computed == 2 * 3  # steps, layers
    aside.rename(runs / "checkpoint-10")
    second = watcher.round()
    assert [result.step for result in second.ingested] == [10]
    assert second.measured[0].computed == 3
    snapshot = Repository.open(watched.store).snapshot_id()
    third = watcher.round()
    assert (third.ingested, third.measured, dict(third.failures)) == ((), (), {})
    assert (third.survey.held, third.survey.newest) == (3, {"tiny": 10})
    assert Repository.open(watched.store).snapshot_id() == snapshot
    measured = read_metrics(Repository.open(watched.store), "cats/tiny")
    assert measured is not None
    assert list(measured.step.values) == held(watched.store) == [0, 5, 10]


def test_a_poll_reads_no_weights_again(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "_RACY_SECONDS", 0.0)
    Watcher(watched).round()
    monkeypatch.setattr(digests, "file_sha256", lambda file: pytest.fail(f"{file} was read"))
    assert Watcher(watched).round().survey.held == 3


def test_a_broken_checkpoint_is_named_and_stops_no_other(watched: Watched, runs: Path) -> None:
    break_off(runs / "checkpoint-5" / "model.safetensors")
    shutil.copytree(runs / "checkpoint-0", runs / "checkpoint-20")
    (runs / "checkpoint-20" / "tokenizer.json").write_text("{}")
    latest = Watcher(watched).round()
    assert [result.step for result in latest.ingested] == [0, 10]
    assert list(latest.failures) == ["tiny step 5", "tiny step 20"]
    assert "is truncated" in latest.failures["tiny step 5"]
    assert held(watched.store) == [0, 10]
    assert latest.survey.held == 0


def test_what_was_refused_is_not_run_again_until_it_changes(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, runs: Path
) -> None:
    tries = []

    def refuse(store: str, checkpoint, *arguments: object, **options: object):
        tries.append(checkpoint.step)
        if checkpoint.step == 5:
            raise NonFiniteError("residual", 1, 3, "tiny step 5")
        return ingest_checkpoint(store, checkpoint, *arguments, **options)

    monkeypatch.setattr(watching, "ingest_checkpoint", refuse)
    watcher = Watcher(watched)
    for _ in range(2):
        assert "NaN or infinite" in watcher.round().failures["tiny step 5"]
    assert tries == [0, 5, 10]
    (runs / "checkpoint-5" / "config.json").touch()
    watcher.round()
    assert tries == [0, 5, 10, 5]


def test_what_is_being_written_is_left_alone(
    watched: Watched, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = Watcher(Watched(**{**vars(watched), "settle": 3600.0}))
    latest = watcher.round()
    assert latest.survey.unfinished == ("tiny step 0", "tiny step 5", "tiny step 10")
    assert (latest.ingested, dict(latest.failures)) == ((), {})
    # A patient round waits once for what was written to just now.
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        later = time.time() + 2 * seconds
        monkeypatch.setattr("flows.capture.settling.time.time", lambda: later)

    monkeypatch.setattr(watching.time, "sleep", sleep)
    assert [result.step for result in watcher.round(patient=True).ingested] == [0, 5, 10]
    assert slept == [3600]


def test_shards_are_waited_for_until_all_are_there(watched: Watched, runs: Path) -> None:
    folder = runs / "checkpoint-5"
    whole = folder / "model.safetensors"
    names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    whole.rename(folder / names["a"])
    found = survey(watched, DigestCache())
    assert "lacks 1 of 2 shards, model-00002" in found.broken["tiny step 5"]
    assert [checkpoint.step for checkpoint in found.missing] == [0, 10]


def test_a_checkpoint_written_over_while_it_is_read_is_refused(
    watched: Watched, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import flows.capture.weights as weights

    load = weights.load_model

    def overtaken(checkpoint, **options: object):
        if checkpoint.step == 5:
            shutil.copy(
                runs / "checkpoint-0" / "model.safetensors",
                runs / "checkpoint-5" / "model.safetensors",
            )
        return load(checkpoint, **options)

    monkeypatch.setattr(weights, "load_model", overtaken)
    latest = Watcher(watched).round()
    assert "was written to while it was read" in latest.failures["tiny step 5"]
    assert held(watched.store) == [0, 10]


def test_a_folder_without_a_checkpoint_is_waited_for(watched: Watched, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    waiting = Watched(**{**vars(watched), "sources": (str(tmp_path / "new"),)})
    assert dict(Watcher(waiting).round().failures) == {}


def test_mistakes_are_told_at_once(watched: Watched, tmp_path: Path) -> None:
    def start(**changes: object) -> None:
        wrong = Watched(**{**vars(watched), **changes})
        watch(wrong, every=60, on_round=lambda _: pytest.fail("there was a round"))

    with pytest.raises(CheckpointError, match="does not exist; did you mean"):
        start(sources=(str(tmp_path / "runs" / "tinny"),))
    with pytest.raises(UnknownNameError, match="did you mean 'cats'"):
        start(corpus="cat")
    with pytest.raises(StoreNotFoundError):
        start(store=str(tmp_path / "nowhere"))


def test_a_store_that_is_away_for_a_while_is_waited_for(watched: Watched, tmp_path: Path) -> None:
    store, away = Path(watched.store), tmp_path / "away"
    stop = threading.Event()
    failures = []

    def on_round(latest: Round) -> None:
        failures.append(bool(latest.failures))
        if len(failures) == 1:
            shutil.rmtree(Path(watched.sources[0]) / "checkpoint-10")
            store.rename(away)
        if len(failures) == 3:
            away.rename(store)
        if len(failures) == 4:
            stop.set()

    watch(watched, every=0.01, on_round=on_round, stop=stop)
    assert failures == [False, True, True, False]
    assert held(watched.store) == [0, 5, 10]


def test_what_another_watcher_stores_comes_last(
    watched: Watched, ingested: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = []

    def reserved(store: str, checkpoint, *arguments: object, options: CaptureOptions, **more):
        waits.append((checkpoint.step, options.rival_wait.total_seconds()))
        if checkpoint.step == 0 and not options.rival_wait:
            raise StepReservedError("a rival has it")
        return ingest_checkpoint(store, checkpoint, *arguments, options=options, **more)

    monkeypatch.setattr(watching, "ingest_checkpoint", reserved)
    latest = Watcher(watched).round()
    assert waits == [(0, 0), (5, 0), (10, 0), (0, 600)]
    assert dict(latest.failures) == {}
    assert held(watched.store) == [0, 5, 10]


def watch_once(watched: Watched) -> None:
    """What each of the overlapping watchers does, in a process of its own."""
    import torch

    torch.set_num_threads(1)
    latest = Watcher(watched).round()
    assert not latest.failures, latest.failures


@pytest.mark.slow
def test_watchers_at_the_same_time_share_the_work(watched: Watched) -> None:
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["flows.capture.forward", "flows.watching", "store"])
    watchers = [processes.Process(target=watch_once, args=(watched,)) for _ in range(2)]
    for process in watchers:
        process.start()
    for process in watchers:
        process.join(timeout=120)
    assert [process.exitcode for process in watchers] == [0, 0]
    assert held(watched.store) == [0, 5, 10]
    measured = read_metrics(Repository.open(watched.store), "cats/tiny")
    assert measured is not None
    assert measured.average_cosine.notnull().all()
