"""``actlas gc``: what it says it would do, what it does, and what it leaves."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest

from flows.cli.options import Age
from store import retention
from store.repository import Repository
from store.verify import census

DROP = ("gc", "--model", "cats/tiny", "--drop-steps", "10")


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let three days pass: what was written up to now is old."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(days=3)

    monkeypatch.setattr(retention, "datetime", Clock)


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_nothing_goes_without_being_told(run, store: str, dry: tuple[str, ...], later) -> None:
    before = Repository.open(store).snapshot_id()
    output = run(*DROP, "--keep-history", "1d", *dry).output
    assert "to be dropped" in output
    assert "Nothing was changed. Repeat with --yes" in output
    answer = json.loads(run(*DROP, "--keep-history", "1d", *dry, "--json").output)
    assert answer["done"] is False
    assert answer["bytes_before"] == answer["bytes_after"]
    assert [one["step"] for one in answer["dropped"]] == [10]
    assert answer["expired"]
    assert Repository.open(store).snapshot_id() == before


def test_dropped_steps_give_their_room_back_and_keep_their_metrics(run, store: str, later) -> None:
    def metrics() -> list[dict[str, object]]:
        rows = json.loads(run("show", "average_cosine", "--json").output)
        return [row | {"snapshot": ""} for row in rows]

    before = metrics()
    arguments = (*DROP, "--keep-history", "1d", "--yes", "--json")
    answer = json.loads(run(*arguments).output)
    (dropped,) = answer["dropped"]
    assert dropped["sites"] == ["residual", "final_norm"]
    # Nothing but history held them, and history was forgotten.
    assert answer["freed_bytes"] >= dropped["stored_bytes"] > 0
    assert answer["bytes_before"] - answer["bytes_after"] >= dropped["stored_bytes"] / 2
    (model,) = json.loads(run("ls", "--json").output)
    assert [step["step"] for step in model["steps"]] == [0]
    assert metrics() == before
    assert census(Repository.open(store)) == []


def test_a_dropped_site_leaves_the_others(run) -> None:
    output = run("gc", "--model", "cats/tiny", "--drop-sites", "final_norm", "--yes").output
    assert "0 snapshots forgotten, 0 objects" in output
    (model,) = json.loads(run("ls", "--json").output)
    assert [step["sites"] for step in model["steps"]] == [["residual"], ["residual"]]


def test_a_tag_keeps_what_it_names(run, later) -> None:
    run("tag", "paper-v1")
    run(*DROP, "--keep-history", "1d", "--yes")
    (model,) = json.loads(run("ls", "--tag", "paper-v1", "--json").output)
    assert [step["step"] for step in model["steps"]] == [0, 10]


def test_what_frees_nothing_says_why(run, store: str) -> None:
    count = len(json.loads(run("history", "--limit", "0", "--json").output))
    told = run("gc", "--yes").output
    assert f"All {count} snapshots keep what is in them: see --keep-history" in told
    run("tag", "young")
    told = run("gc", "--keep-history", "0d", "--yes").output
    assert f"Of {count} snapshots {count} are too young to be forgotten (--keep-" in told
    assert "tags keep 0 others" in told
    dropped = run(*DROP, "--yes").output
    assert "activations stay in the history until --keep-history lets go of it" in dropped


def test_tags_that_keep_all_are_counted(run, later) -> None:
    ids = [one["id"] for one in json.loads(run("history", "--limit", "0", "--json").output)]
    for number, snapshot in enumerate(ids[1:-1]):
        run("tag", f"v{number}", "--snapshot", snapshot)
    answer = json.loads(run("gc", "--keep-history", "1d", "--yes", "--json").output)
    assert answer["expired"] == []
    assert (answer["kept"], answer["kept_young"]) == (len(ids), 0)
    assert answer["kept_tagged"] == len(ids) - 2


def test_a_watch_brings_back_dropped_steps_and_no_dropped_sites(run, run_folder) -> None:
    run("gc", "--model", "cats/tiny", "--drop-sites", "final_norm", "--yes")
    run(*DROP, "--yes")
    run(
        "watch",
        str(run_folder),
        "--corpus",
        "cats",
        "--once",
        "--settle",
        "0s",
        "--metrics",
        "none",
    )
    (model,) = json.loads(run("ls", "--json").output)
    assert {one["step"]: "final_norm" in one["sites"] for one in model["steps"]} == {
        0: False,
        5: True,
        10: True,
    }


def test_all_steps_have_to_be_named(run) -> None:
    answer = run("gc", "--model", "cats/tiny", "--drop-steps", "all", "--yes", "--json").output
    assert [one["step"] for one in json.loads(answer)["dropped"]] == [0, 10]
    assert json.loads(run("ls", "--json").output)[0]["steps"] == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--drop-steps", "10"], 2, "go with --model"),
        (["--model", "cats/tiny"], 2, "go with --model"),
        (["--dry-run", "--yes"], 2, "either --dry-run or --yes"),
        (["--keep-history", "3"], 2, "'3' is no time: expected days, hours, minutes or seconds"),
        (["--margin", "5m"], 2, "at least 0:10:00"),
        (["--model", "cats/tinny", "--drop-steps", "10"], 2, "did you mean 'tiny'"),
        (["--model", "cats/tiny", "--drop-steps", "3"], 2, "no step 3"),
        (["--model", "cats/tiny", "--drop-sites", "residul"], 2, "did you mean 'residual'"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_goes(
    run, store: str, arguments: list[str], code: int, message: str
) -> None:
    before = Repository.open(store).snapshot_id()
    assert message in " ".join(run("gc", *arguments, code=code).stderr.split())
    if code == 1:
        run("gc", *arguments, "--model", "cats/tiny", "--drop-steps", "0", "--yes", code=code)
    assert Repository.open(store).snapshot_id() == before


def test_ages() -> None:
    ages = [Age().convert(text, None, None) for text in ("30d", "12h", "90m")]
    assert ages == [timedelta(days=30), timedelta(hours=12), timedelta(minutes=90)]
