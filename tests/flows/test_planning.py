from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import flows.trial
from flows.capture.checkpoints import Checkpoint
from flows.capture.chosen import RowChoice
from flows.cli import actlas
from flows.corpora import Chunking, add_texts
from flows.ingestion import ingest_checkpoint
from flows.planning import IngestPlan, PlannedStep, plan_ingest
from flows.running import CaptureOptions
from flows.sizes import refuse_what_does_not_fit
from flows.trial import _fitted, _Part
from store.catalogue import catalogue, find_step
from store.errors import StoreFullError
from store.repository import Repository
from store.schema import SITES

SAMPLE = RowChoice("sample", 3)


def plan(store: str, checkpoints: list[Checkpoint], **options):
    """Plan with the shortest trial."""
    return plan_ingest(store, checkpoints, "cats", enough_seconds=0.0, **options)


def test_the_forecast_is_what_is_stored(
    store: str, checkpoints: list[Checkpoint], tmp_path: Path
) -> None:
    before = Repository.open(store).snapshot_id()
    planned = plan(store, checkpoints[:1])
    assert Repository.open(store).snapshot_id() == before
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    (step,) = planned.steps
    result = ingest_checkpoint(store, checkpoints[0], "cats")
    (held,) = catalogue(Repository.open(store))
    assert step.path == held.path
    assert step.tokens == held.n_tokens
    # Three layers and the final norm of 16 float32 values a token; compression only takes away.
    assert step.raw_bytes == held.n_tokens * (3 + 1) * 16 * 4
    # The trial had all sequences: the corpus is smaller than a batch.
    assert step.stored_bytes == result.stored_bytes
    assert 0 < step.seconds <= planned.seconds
    again = plan(store, checkpoints[:1])
    assert again.steps[0].stored
    assert (again.stored_bytes, again.raw_bytes) == (0, 0)


def test_what_a_corpus_grew_by_is_planned_alone(
    store: str, text: str, checkpoints: list[Checkpoint]
) -> None:
    ingest_checkpoint(store, checkpoints[0], "cats")
    (small,) = catalogue(Repository.open(store))
    add_texts(store, "cats", {"cats.txt": text}, chunking=Chunking("chars", 50), max_sequences=30)
    (planned,) = plan(store, checkpoints[:1]).steps
    ingest_checkpoint(store, checkpoints[0], "cats")
    (large,) = catalogue(Repository.open(store))
    assert not planned.stored
    assert planned.tokens == large.n_tokens - small.n_tokens


def test_growth_and_a_site_that_is_lacking_are_planned_together(
    store: str, text: str, checkpoints: list[Checkpoint]
) -> None:
    ingest_checkpoint(store, checkpoints[0], "cats")
    before = find_step(Repository.open(store), "cats/tiny", checkpoints[0].step)
    add_texts(store, "cats", {"cats.txt": text}, chunking=Chunking("chars", 50), max_sequences=30)
    both = CaptureOptions(sites=("residual", "mlp_output"))
    (planned,) = plan(store, checkpoints[:1], options=both).steps
    ingest_checkpoint(store, checkpoints[0], "cats", options=both)
    after = find_step(Repository.open(store), "cats/tiny", checkpoints[0].step)
    # Three layers and the final norm of what is new, and two blocks of all tokens, 16 values each.
    values = (after.n_tokens - before.n_tokens) * 4 + after.n_tokens * 2
    assert planned.raw_bytes == values * 16 * 4
    assert planned.tokens == after.n_tokens


@pytest.mark.parametrize(
    "options",
    [
        CaptureOptions(rows=RowChoice("last"), layers=(1, 2)),
        CaptureOptions(
            rows=RowChoice("sample", 3), layers=(2,), sites=("residual", "attention_probability")
        ),
    ],
)
def test_chosen_rows_and_layers_are_planned_as_they_are_stored(
    store: str, checkpoints: list[Checkpoint], options: CaptureOptions
) -> None:
    (planned,) = plan(store, checkpoints[:1], options=options).steps
    result = ingest_checkpoint(store, checkpoints[0], "cats", options=options)
    group = Repository.open(store).read()["cats/tiny"]
    stored = [group[site] for site in result.sites]
    assert planned.tokens == group["token_id"].shape[0]
    assert planned.raw_bytes == sum(array.nbytes // array.shape[0] for array in stored)
    assert planned.files == sum(array.nchunks // array.shape[0] for array in stored)
    assert planned.stored_bytes == pytest.approx(result.stored_bytes, rel=0.15)


def test_a_site_that_is_added_is_planned_alone(store: str, checkpoints: list[Checkpoint]) -> None:
    ingest_checkpoint(store, checkpoints[0], "cats")
    both = CaptureOptions(sites=("residual", "mlp_output"))
    (planned,) = plan(store, checkpoints[:1], options=both).steps
    before = find_step(Repository.open(store), "cats/tiny", checkpoints[0].step)
    ingest_checkpoint(store, checkpoints[0], "cats", options=both)
    after = find_step(Repository.open(store), "cats/tiny", checkpoints[0].step)
    # Two blocks of 16 values.
    assert planned.raw_bytes == after.n_tokens * 2 * 16 * 4
    assert planned.stored_bytes == after.stored_bytes - before.stored_bytes


def test_one_trial_serves_all_checkpoints_of_a_model(
    store: str, checkpoints: list[Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = []
    original = flows.trial.load_job
    monkeypatch.setattr(
        flows.trial, "load_job", lambda job, shown: loads.append(job) or original(job, shown)
    )
    planned = plan(store, checkpoints)
    assert len(loads) == 1
    assert len({step.stored_bytes for step in planned.steps}) == 1
    assert planned.seconds > sum(step.seconds for step in planned.steps[:2])


def test_what_a_step_costs_is_told_from_what_a_token_costs() -> None:
    # 2 s a step and 1 ms a token, whatever came before the last two parts.
    parts = [_Part(10, 9.0, 0, 10), _Part(1000, 3.0, 7000, 10), _Part(4000, 6.0, 24_000, 400)]
    trial = _fitted(0.5, _Part(1, 2.701, 0, 1), parts)
    assert (trial.step_seconds, trial.position_seconds) == pytest.approx((2.0, 0.001))
    assert trial.warm_up_seconds == pytest.approx(0.7)
    assert replace(trial, positions=100_000).seconds == pytest.approx(102.5)
    assert trial.row_bytes == 60.0
    # A part cannot cost less than nothing a token, nor less than nothing besides its tokens.
    nothing = _Part(1, 0.0, 0, 1)
    faster = [_Part(1000, 3.0, 0, 1), _Part(4000, 2.0, 0, 1)]
    assert _fitted(0.0, nothing, faster).position_seconds == 0
    slower = [_Part(1000, 1.0, 0, 1), _Part(4000, 8.0, 0, 1)]
    assert _fitted(0.0, nothing, slower).step_seconds == 0


def test_chunks_are_counted_as_they_lie_in_the_store(
    store: str, checkpoints: list[Checkpoint]
) -> None:
    (planned,) = plan(store, checkpoints[:1]).steps
    ingest_checkpoint(store, checkpoints[0], "cats")
    group = Repository.open(store).read()["cats/tiny"]
    # Of each array, the chunks of one of its step slots.
    chunks = sum(group[site].nchunks // group[site].shape[0] for site in ("residual", "final_norm"))
    assert planned.files == chunks == 4


def test_every_site_has_a_forecast(store: str, checkpoints: list[Checkpoint]) -> None:
    options = CaptureOptions(sites=tuple(SITES))
    (planned,) = plan(store, checkpoints[:1], options=options).steps
    assert planned.raw_bytes > planned.stored_bytes > 0


def test_what_does_not_fit_is_said() -> None:
    step = PlannedStep(
        "c/m",
        0,
        stored=False,
        tokens=1,
        raw_bytes=300,
        stored_bytes=100,
        files=1,
        seconds=0.1,
        sequences=1,
        truncated_sequences=0,
    )
    stored = replace(step, step=1, stored=True)
    assert not IngestPlan((step,), free_bytes=99).fits
    assert IngestPlan((step,), free_bytes=100).fits
    assert IngestPlan((step,), free_bytes=None).fits
    assert IngestPlan((step, stored), free_bytes=100).fits


def test_a_run_that_would_not_fit_is_refused_unless_told(
    store: str,
    checkpoints: list[Checkpoint],
    run_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usage = shutil.disk_usage(store)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=200_000))
    options = CaptureOptions()
    refuse_what_does_not_fit(store, checkpoints[:1], "cats", options)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=20_000))
    with pytest.raises(StoreFullError, match=r"at least .* are free for .*nothing was run"):
        refuse_what_does_not_fit(store, checkpoints, "cats", options)
    command = ["ingest", str(run_folder), "--corpus", "cats", "--store", store, "--json"]
    refused = CliRunner().invoke(actlas, command)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert list(catalogue(Repository.open(store))) == []
    told = CliRunner().invoke(actlas, [*command, "--ignore-space"])
    assert (told.exit_code, len(json.loads(told.stdout))) == (0, 3)
