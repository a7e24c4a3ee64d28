"""Several processes on one store: nothing acknowledged is lost, nothing is there twice."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np

WRITERS = 4
STEPS = 3


def finished(processes):
    reports = [report for process in processes for report in process.rest() if report != "ready"]
    assert [process.process.exitcode for process in processes] == [0] * len(processes)
    return reports


def test_writers_of_different_steps_lose_nothing(toy, tmp_path, start_toy):
    # A capacity that has to grow while all of them write.
    repository = toy.prepare(tmp_path / "store", step_capacity=8)
    steps = [range(first, first + STEPS) for first in range(0, 10 * WRITERS, 10)]
    reports = finished([start_toy(repository.uri, 0, *mine) for mine in steps])
    acknowledged = [step for kind, step in reports if kind == "stored"]
    assert sorted(acknowledged) == sorted(step for mine in steps for step in mine)
    for step in acknowledged:
        toy.assert_stored(repository, step)
    history = Counter(
        item.message.partition(":")[0] for item in repository.icechunk.ancestry(branch="main")
    )
    for step in acknowledged:
        assert history[f"store {toy.PATH} step {step}"] == 1


def test_of_writers_of_one_step_exactly_one_wins(toy, tmp_path, start_toy):
    repository = toy.prepare(tmp_path / "store")
    steps = range(STEPS)
    reports = finished([start_toy(repository.uri, 0, *steps) for _ in range(2)])
    assert Counter(reports) == Counter(
        (kind, step) for kind in ("stored", "already") for step in steps
    )
    labels = repository.read()[toy.PATH]["step"][:]
    assert sorted(labels[labels >= 0]) == list(steps)
    for step in steps:
        toy.assert_stored(repository, step)


def test_threads_of_one_process_share_a_repository(toy, uri):
    repository = toy.prepare(uri)
    with ThreadPoolExecutor(WRITERS) as pool:
        snapshots = list(pool.map(lambda step: toy.ingest(repository, step), range(8)))
    assert len(set(snapshots)) == 8
    history = {item.id for item in repository.icechunk.ancestry(branch="main")}
    assert set(snapshots) <= history
    for step in range(8):
        toy.assert_stored(repository, step)
    labels = repository.read()[toy.PATH]["step"][:]
    assert len(np.unique(labels[labels >= 0])) == 8
