"""A writer killed at any moment leaves complete steps and nothing else, and blocks nobody."""

import random
import time

import numpy as np
import pytest

KILLS = 10
STEPS = range(16)


def complete_steps(repository, toy):
    group = repository.read()[toy.PATH]
    labels, complete = group["step"][:], group["complete"][:]
    used = labels[labels >= 0]
    assert len(np.unique(used)) == len(used), "a step has two slots"
    for slot in np.flatnonzero(~complete):
        assert np.isnan(group["residual"][int(slot)]).all(), "half a step is visible"
    return sorted(int(step) for step in labels[complete])


def test_kills_at_random_moments(toy, tmp_path, start_toy):
    repository = toy.prepare(tmp_path / "store", step_capacity=8)
    moments = random.Random(0)
    acknowledged, checked = set(), set()
    for _ in range(KILLS):
        process = start_toy(repository.uri, 0, *STEPS)
        assert process.line() == "ready"
        time.sleep(moments.uniform(0.02, 0.4))
        acknowledged |= {step for _, step in process.kill()}
        complete = complete_steps(repository, toy)
        assert acknowledged <= set(complete), "an acknowledged step is gone"
        for step in set(complete) - checked:
            toy.assert_stored(repository, step)
        checked |= set(complete)

    started = time.monotonic()
    process = start_toy(repository.uri, 0, *STEPS)
    process.rest()
    assert process.process.exitcode == 0
    assert time.monotonic() - started < 60, "somebody waited for a dead writer"
    assert complete_steps(repository, toy) == list(STEPS)
    for step in STEPS:
        toy.assert_stored(repository, step)


@pytest.mark.parametrize("moment", ["reserved", "written"])
def test_a_dead_writers_slot_is_taken_over_at_once(toy, tmp_path, start_toy, moment):
    repository = toy.prepare(tmp_path / "store")
    process = start_toy(repository.uri, 0, moment, 7)
    assert process.line() == "ready"
    assert process.line() == (moment, 7)
    slot = int(np.flatnonzero(repository.read()[toy.PATH]["step"][:] == 7)[0])
    process.kill()
    toy.ingest(repository, 7)
    toy.assert_stored(repository, 7)
    assert repository.read()[toy.PATH]["step"][slot] == 7
