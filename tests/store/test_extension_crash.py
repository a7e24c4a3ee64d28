"""What is there stays whole when whoever adds layers, sites or sequences to it is killed."""

import random
import time

import numpy as np
import toy_extension
from toy_extension import EVERY, FIRST, LONG, SHORT, STEPS

from store.catalogue import catalogue
from store.slab import slabs
from store.verify import census

KILLS = (0, 1, 3, 4, 6, 7)
"""After how many extensions of nine a process is killed, somewhere in the next one."""


def check(repository, toy, acknowledged):
    """Make sure that each step is as it was, or extended whole; return how far all of them are."""
    assert census(repository) == []
    (held,) = catalogue(repository, model="owner/toy")
    steps = {step.step: step for step in held.steps}
    assert tuple(steps) == STEPS
    assert held.n_tokens == min(step.n_tokens for step in held.steps)
    done = set()
    for number, step in steps.items():
        assert step.complete
        assert step.layers["residual"] in (FIRST, EVERY)
        assert step.layers.get("mlp_output", EVERY[1:]) == EVERY[1:]
        assert step.n_tokens in (SHORT, LONG)
        done |= {("layers", number)} if step.layers["residual"] == EVERY else set()
        done |= {("sites", number)} if "mlp_output" in step.sites else set()
        done |= {("tokens", number)} if step.n_tokens == LONG else set()
        for site in step.sites:
            found = slabs(repository, toy.PATH, site=site, steps=[number])
            rows = np.stack([slab.rows(np.arange(held.n_tokens)) for slab in found])
            expected = toy_extension.values(number, site, step.layers.get(site, ()), held.n_tokens)
            np.testing.assert_array_equal(rows, np.reshape(expected, rows.shape))
    assert acknowledged <= done, "an acknowledged extension is gone"
    return done


def test_kills_while_steps_are_extended(toy, tmp_path, start_toy):
    repository = toy_extension.prepare(tmp_path / "store")
    moments = random.Random(0)
    acknowledged, stages = set(), set()
    for kill in KILLS:
        process = start_toy(repository.uri, target=toy_extension.main)
        assert process.line() == "ready"
        acknowledged |= {process.line() for _ in range(kill)}
        time.sleep(moments.uniform(0, 0.3))
        acknowledged |= set(process.kill())
        stages.add(len(check(repository, toy, acknowledged)))
    process = start_toy(repository.uri, target=toy_extension.main)
    process.rest()
    assert process.process.exitcode == 0
    every = {(what, step) for what in ("layers", "sites", "tokens") for step in STEPS}
    assert check(repository, toy, set()) == every
    assert len(stages) > 1, "every kill came at the same stage; the test says nothing"
