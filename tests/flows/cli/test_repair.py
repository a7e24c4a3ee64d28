"""``actlas repair``: just the damaged steps, from the same weights, with a proof."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from store import open_store
from store.catalogue import find_step
from store.repository import Repository

PATH = "cats/tiny"


def rows(uri: str) -> np.ndarray:
    return open_store(uri)[PATH]["residual"].values


def test_just_the_damaged_step_is_computed_again(
    run, store: str, pristine: Path, run_folder: Path, damage
) -> None:
    repository = Repository.open(store)
    (untouched, bad) = (find_step(repository, PATH, step) for step in (0, 10))
    damage("residual/c/1/2/0/0")
    run("verify", code=1)
    arguments = ("repair", PATH, "--source", str(run_folder), "--json")
    done = json.loads(run(*arguments).output)
    assert done["repaired"] == [10]
    assert done["left"] == []
    (found,) = done["found"]
    assert (found["kind"], found["step"], found["layer"]) == ("missing", 10, 2)
    run("verify")
    np.testing.assert_array_equal(rows(store), rows(str(pristine)))
    first, second = (find_step(Repository.open(store), PATH, step) for step in (0, 10))
    assert untouched
    assert bad
    assert first
    assert second
    assert first.ingested_at == untouched.ingested_at
    assert (second.identity, second.sites) == (bad.identity, bad.sites)


def test_what_was_computed_before_a_repair_is_computed_again(
    run, store: str, run_folder: Path, damage
) -> None:
    """The values may be of the damaged chunks: 3 layers and 4 populations of step 10."""
    assert " 0 values computed" in run("compute", "average_cosine").output
    damage("residual/c/1/2/0/0")
    said = run("repair", PATH, "--source", str(run_folder)).output
    assert "run `actlas compute` again" in " ".join(said.split())
    assert " 12 values computed" in run("compute", "average_cosine").output
    assert " 0 values computed" in run("compute", "average_cosine").output


def test_a_sound_model_is_left_alone(run, store: str) -> None:
    before = Repository.open(store).snapshot_id()
    assert "Every chunk of cats/tiny is as it was written" in run("repair", PATH).output
    assert Repository.open(store).snapshot_id() == before


def test_steps_not_chosen_stay_bad_and_are_reported(run, run_folder: Path, damage) -> None:
    damage("residual/c/1/2/0/0")
    left = run("repair", PATH, "--steps", "0", code=1).output
    assert "the chunk is missing" in left
    repaired = run("repair", PATH, "--steps", "0,10", "--source", str(run_folder)).output
    assert "computed again: step 10" in repaired


def test_other_weights_repair_nothing(run, store: str, run_folder: Path, damage) -> None:
    damage("residual/c/0/1/0/0")
    before = Repository.open(store).snapshot_id()
    other = str(run_folder / "checkpoint-5")
    message = run("repair", PATH, "--source", other, code=1).stderr
    assert "is not what cats/tiny step 0 was stored from" in message
    assert Repository.open(store).snapshot_id() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cats"], "'cats' is no CORPUS/MODEL"),
        (["cats/tinny"], "did you mean 'tiny'"),
        (["cats/tiny", "--steps", "3"], "no step 3"),
    ],
)
def test_what_cannot_be_repaired(run, arguments: list[str], message: str) -> None:
    assert message in " ".join(run("repair", *arguments, code=2).stderr.split())
