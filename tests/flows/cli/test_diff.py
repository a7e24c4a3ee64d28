"""``actlas diff``: two stores, two moments, and what is refused."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result

from flows.capture.checkpoints import find_checkpoints
from flows.corpora import Chunking, add_texts
from flows.ingestion import ingest_checkpoint
from flows.measurement import MeasureOptions, find_targets, measure_target
from store.repository import Repository

Run = Callable[..., Result]


@pytest.fixture
def other_store(tmp_path: Path, text: str, run_folder: Path) -> str:
    """Return a store of the same, but for step 10: there it holds the weights of step 5."""
    store = str(tmp_path / "other")
    chunking = Chunking("chars", 50)
    add_texts(store, "cats", {"cats.txt": text}, chunking=chunking, max_sequences=8)
    first, second = find_checkpoints(str(run_folder), steps=[0, 5])
    for checkpoint in (first, replace(second, step=10)):
        ingest_checkpoint(store, checkpoint, "cats")
    (target,) = find_targets(Repository.open(store))
    measure_target(store, target, options=MeasureOptions(metrics=("average_cosine",)))
    return store


def test_two_stores_are_compared_place_by_place(
    run: Run, store: str, other_store: str, tmp_path: Path
) -> None:
    table, figure = tmp_path / "change.csv", tmp_path / "change.png"
    asked = ("diff", store, other_store, "average_cosine")
    result = run(*asked, "-o", str(table), "-o", str(figure))
    assert f"Wrote {figure}" in result.output
    assert figure.read_bytes().startswith(b"\x89PNG")

    with table.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["step"], row["layer"]) for row in rows] == [
        (step, layer) for step in ("0", "10") for layer in "012"
    ]
    same, changed = rows[:3], rows[3:]
    # The same weights over the same text give the same numbers.
    assert {(row["difference"], row["beyond_error"]) for row in same} == {("0", "no")}
    shown = json.loads(run("show", "average_cosine", "--steps", "10", "--json").stdout)
    for row, expected in zip(changed, shown, strict=True):
        before, after = float(row["before"]), float(row["after"])
        assert before == pytest.approx(expected["value"], rel=1e-9)
        assert float(row["difference"]) == pytest.approx(after - before, abs=1e-9)
        assert after != before


def test_two_moments_and_pairs_of_names(run: Run) -> None:
    run("tag", "first")
    found = json.loads(
        run("diff", "first", "now", "average_cosine", "--pair", "tiny=tiny", "--json").stdout
    )
    assert len(found) == 6
    assert {row["difference"] for row in found} == {0.0}
    (newest,) = {row["before_snapshot"] for row in found} | {row["after_snapshot"] for row in found}
    assert newest in run("diff", "first", "now", "average_cosine").output
    assert newest in run("show", "average_cosine").output
    assert {
        row["snapshot"] for row in json.loads(run("show", "average_cosine", "--json").stdout)
    } == {newest}
    chosen = ("average_cosine", "--models", "tiny", "--json")
    assert json.loads(run("diff", "first", "now", *chosen).stdout) == found


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("nothing", "now"), 2, "no tag, snapshot or store 'nothing'"),
        (("now", "now", "svd_anisotropy"), 1, "svd_anisotropy has not been computed"),
        (("now", "now", "average_cosin"), 2, "did you mean 'average_cosine'"),
        (("now", "now", "--pair", "tiny"), 2, "expected BEFORE=AFTER"),
        (("now", "now", "--pair", "tiny=huge"), 2, "no model 'huge'"),
        (("now", "now", "--models", "tinny"), 2, "did you mean 'tiny'"),
        (("now", "now", "-o", "x.txt"), 2, "ending in .csv, .png, .pdf, .svg"),
    ],
)
def test_what_cannot_be_compared_is_said(
    run: Run, arguments: tuple[str, ...], code: int, message: str
) -> None:
    assert message in run("diff", *arguments, code=code).output
