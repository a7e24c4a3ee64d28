"""``actlas verify --replay``: rows that are the model's, rows that are not, and other models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from store.catalogue import find_step
from store.repository import Repository
from store.slab import slabs, token_table
from store.write import reserve_step

PATH = "cats/tiny"


@pytest.fixture
def altered(store: str) -> tuple[int, int]:
    """Store step 10 with one row of layer 2 changed, checksums and all; return where."""
    repository = Repository.open(store)
    held = find_step(repository, PATH, 10)
    assert held is not None
    snapshot = repository.snapshot_id()
    tokens = token_table(store, PATH, snapshot)
    values = {
        site: np.stack(
            [
                slab.rows(np.arange(slab.n_tokens))
                for slab in slabs(repository, PATH, site=site, steps=[10], snapshot=snapshot)
            ]
        )
        for site in held.sites
    }
    token = 7
    # The row is off by a thousandth of its norm, a hundred times what is allowed.
    values["residual"][2, token] *= 1.001
    writer = reserve_step(repository, PATH, 10, identity=held.identity, rewrite=True)
    with writer:
        writer.write_block("residual", 0, values["residual"])
        writer.write_block("final_norm", 0, values["final_norm"][0])
        writer.commit(provenance={"weights_sha256": held.weights_sha256})
    return int(tokens["sequence"][token]), int(tokens["position"][token])


def test_stored_rows_are_the_models(run, run_folder: Path) -> None:
    arguments = ("verify", PATH, "--replay", "3", "--seed", "1", "--source", str(run_folder))
    replayed = json.loads(run(*arguments, "--json").output)
    assert [one["step"] for one in replayed] == [0, 10]
    for one in replayed:
        assert one["sound"] is True
        assert one["dtype"] == "float32"
        assert len(one["sequences"]) == 3
        assert 0 <= one["worst"]["deviation"] <= one["tolerance"] == 1e-5
    assert replayed[0]["sequences"] == replayed[1]["sequences"]
    table = run(*arguments, "--steps", "10").output
    assert "sound" in table
    assert "sequence" in table


def test_a_row_that_is_not_the_models_is_found_where_checksums_are_right(
    run, run_folder: Path, altered: tuple[int, int]
) -> None:
    assert "as it was written" in run("verify").output
    arguments = ("verify", PATH, "--replay", "8", "--source", str(run_folder))
    first, second = json.loads(run(*arguments, "--json", code=1).output)
    assert first["sound"] is True
    assert second["sound"] is False
    worst = second["worst"]
    assert (worst["site"], worst["layer"]) == ("residual", 2)
    assert (worst["sequence"], worst["position"]) == altered
    assert worst["deviation"] == pytest.approx(1e-3, rel=1e-2)
    assert "NOT WHAT THE MODEL GIVES" in run(*arguments, code=1).output


def test_a_chunk_that_cannot_be_read_is_a_finding(run, run_folder: Path, damage) -> None:
    damage("residual/c/1/2/0/0")
    arguments = ("verify", PATH, "--replay", "2", "--source", str(run_folder), "--json")
    first, second = json.loads(run(*arguments, code=1).output)
    assert first["sound"] is True
    assert second["worst"] is None
    assert "the chunk is missing" in second["problem"]


def test_the_model_is_found_by_what_the_store_recorded(
    run, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (one,) = json.loads(run("verify", "--replay", "1", "--steps", "10", "--json").output)
    assert one["sound"] is True
    moved = run_folder.rename(tmp_path / "elsewhere")
    try:
        message = " ".join(run("verify", "--replay", "1", code=1).stderr.split())
    finally:
        moved.rename(run_folder)
    assert f"revision checkpoint-0, at {run_folder}/checkpoint-0" in message
    assert "not found again" in message
    assert "--source" in message


def test_another_checkpoint_is_refused_by_its_digest(run, run_folder: Path) -> None:
    other = str(run_folder / "checkpoint-5")
    message = run("verify", PATH, "--replay", "1", "--source", other, code=1).stderr
    assert "is not what cats/tiny step 0 was stored from" in message
    assert "weights_sha256: stored" in message


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--census", "--replay", "1"], 2, "either --census or --replay"),
        (["--source", "x"], 2, "go with --replay"),
        (["--replay", "0"], 2, "x>=1"),
        (["cats/tinny", "--replay", "1"], 2, "did you mean 'tiny'"),
        (["--replay", "1", "--steps", "3"], 2, "no step 3"),
        (["--replay", "1", "--source", "nowhere"], 2, "nowhere does not exist"),
    ],
)
def test_what_cannot_be_replayed(run, arguments: list[str], code: int, message: str) -> None:
    assert message in " ".join(run("verify", *arguments, code=code).stderr.split())
