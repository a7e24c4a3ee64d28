"""``actlas history`` and ``tag``, and reading the store as it was."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from store.history import history
from store.repository import Repository
from store.retention import drop_activations


def test_history_lists_snapshots_the_newest_first(run, store: str) -> None:
    shown = json.loads(run("history", "--json", "--limit", "0").output)
    known = history(Repository.open(store))
    assert [one["id"] for one in shown] == [one.id for one in known]
    assert datetime.fromisoformat(shown[0]["written_at"]) == known[0].written_at
    messages = [one["message"] for one in shown]
    assert len(set(messages)) == len(messages), "each says what it alone did"
    assert "add corpus cats: 8 texts" in messages
    assert "store cats/tiny step 10: residual, final_norm" in messages
    assert shown == json.loads(run("history", "--json", "--limit", str(len(shown))).output)


def test_history_is_cut_and_says_so(run, store: str) -> None:
    output = run("history", "--limit", "2").output
    newest, second, third = history(Repository.open(store))[:3]
    assert newest.id in output
    assert second.id in output
    assert third.id not in output
    assert re.search(r"\d+ older ones: actlas history --limit 0", output)


def test_what_writers_do_with_their_slots_is_left_out(run, store: str) -> None:
    reserved = [one for one in history(Repository.open(store)) if one.bookkeeping]
    assert {one.message for one in reserved} == {
        "reserve cats/tiny step 0",
        "reserve cats/tiny step 10",
    }
    shown, everything = run("history").output, run("history", "-v").output
    assert all(one.id in everything and one.id not in shown for one in reserved)
    # What a tag stands for is told, whatever it is.
    run("tag", "odd", "--snapshot", reserved[0].id)
    assert reserved[0].id in run("history").output


def test_a_tag_is_given_listed_and_shown(run, store: str) -> None:
    assert "no tags yet" in run("tag").output
    snapshot = Repository.open(store).snapshot_id()
    assert f"paper-v1 stands for snapshot {snapshot}" in run("tag", "paper-v1").output
    assert json.loads(run("tag", "--json").output) == {"paper-v1": snapshot}
    assert "paper-v1" in run("tag").output
    assert "paper-v1" in run("history").output


def test_a_tag_of_an_older_snapshot(run, store: str) -> None:
    older = history(Repository.open(store))[2].id
    assert json.loads(run("tag", "before", "--snapshot", older, "--json").output) == {
        "before": older
    }
    run("tag", "before", "--snapshot", older)
    moved = run("tag", "before", code=1)
    assert "tags are not moved" in moved.stderr
    assert "no snapshot 'ABC'" in run("tag", "x", "--snapshot", "ABC", code=2).stderr
    assert "calls the newest one so" in run("tag", "now", code=2).stderr
    assert "now" not in json.loads(run("tag", "--json").output)
    assert "goes with a NAME" in run("tag", "--snapshot", older, code=2).stderr


def test_ls_show_and_plot_read_the_store_as_it_was(run, store: str, tmp_path) -> None:
    run("tag", "before")
    repository = Repository.open(store)
    before = repository.snapshot_id()
    written = history(repository)[0].written_at
    drop_activations(repository, "cats/tiny", steps=[10])

    def steps(*moment: str) -> list[int]:
        (model,) = json.loads(run("ls", "--json", *moment).output)
        return [step["step"] for step in model["steps"]]

    assert steps() == [0]
    assert steps("--tag", "before") == [0, 10]
    assert steps("--snapshot", before) == [0, 10]
    assert steps("--as-of", written.isoformat()) == [0, 10]
    shown = ("show", "average_cosine", "--json", "--tag", "before")
    assert {row["step"] for row in json.loads(run(*shown).output)} == {0, 10}
    figure = tmp_path / "cosine.png"
    run("plot", "average_cosine", "--snapshot", before, "-o", str(figure))
    assert figure.exists()


def test_results_of_dropped_activations_are_still_shown(run, store: str) -> None:
    def shown() -> list[dict[str, object]]:
        return json.loads(run("show", "average_cosine", "--json").output)

    before = shown()
    drop_activations(Repository.open(store), "cats/tiny")
    now = Repository.open(store).snapshot_id()
    assert shown() == [row | {"snapshot": now} for row in before]
    assert "no step 3" in run("show", "average_cosine", "--steps", "3", code=2).stderr


@pytest.mark.parametrize(
    ("moment", "code", "message"),
    [
        (["--tag", "befor"], 2, "did you mean 'before'"),
        (["--tag", "before", "--snapshot", "A"], 2, "one of --snapshot, --tag and --as-of"),
        (["--as-of", "yesterday"], 2, "expected ISO 8601"),
        (["--as-of", (datetime.now(UTC) - timedelta(days=9)).isoformat()], 2, "its oldest is of"),
        (["--snapshot", "A"], 2, "no snapshot 'A'"),
    ],
)
def test_moments_that_are_not_there(run, moment: list[str], code: int, message: str) -> None:
    run("tag", "before")
    assert message in run("ls", *moment, code=code).stderr
