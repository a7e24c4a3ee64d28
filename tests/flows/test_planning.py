from __future__ import annotations

from dataclasses import replace

from flows.capture.checkpoints import Checkpoint
from flows.ingestion import ingest_checkpoint
from flows.planning import IngestPlan, PlannedStep, plan_ingest
from flows.running import CaptureOptions
from store.catalogue import catalogue
from store.repository import Repository
from store.schema import SITES


def test_the_forecast_is_what_is_stored(store: str, checkpoints: list[Checkpoint]) -> None:
    (planned,) = plan_ingest(store, checkpoints[:1], "cats").steps
    result = ingest_checkpoint(store, checkpoints[0], "cats")
    (held,) = catalogue(Repository.open(store))
    assert planned.path == held.path
    assert planned.tokens == held.n_tokens
    # Three layers and the final norm of 16 float32 values a token; compression only takes away.
    assert planned.raw_bytes == held.n_tokens * (3 + 1) * 16 * 4
    assert 0 < result.stored_bytes <= 1.05 * planned.raw_bytes
    assert planned.seconds > 0


def test_chunks_are_counted_as_they_lie_in_the_store(
    store: str, checkpoints: list[Checkpoint]
) -> None:
    (planned,) = plan_ingest(store, checkpoints[:1], "cats").steps
    ingest_checkpoint(store, checkpoints[0], "cats")
    group = Repository.open(store).read()["cats/tiny"]
    # Of each array, the chunks of one of its step slots.
    chunks = sum(group[site].nchunks // group[site].shape[0] for site in ("residual", "final_norm"))
    assert planned.files == chunks == 4


def test_every_site_has_a_forecast(store: str, checkpoints: list[Checkpoint]) -> None:
    options = CaptureOptions(sites=tuple(SITES))
    (planned,) = plan_ingest(store, checkpoints[:1], "cats", options=options).steps
    assert planned.raw_bytes > 0


def test_what_does_not_fit_is_said() -> None:
    step = PlannedStep(
        "c/m",
        0,
        stored=False,
        tokens=1,
        raw_bytes=100,
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
