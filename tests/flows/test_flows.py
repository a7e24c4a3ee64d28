"""The Prefect flows, once for real on a server of their own; the rest as plain functions."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from analysis.errors import UnknownMetricError
from flows.capture.checkpoints import find_checkpoints
from flows.capture.errors import CheckpointError
from flows.failures import FlowError, is_worth_retrying, raise_failures
from store.errors import StoreFullError, UnknownNameError
from store.repository import Repository

pytestmark = pytest.mark.filterwarnings("default:::prefect", "default:::websockets")


@pytest.mark.parametrize(
    ("error", "worth"),
    [
        (CheckpointError("truncated"), False),
        (UnknownMetricError("x", ["y"]), False),
        (UnknownNameError("corpus", "x", ["y"], "z"), False),
        (StoreFullError("full"), True),
        (ConnectionError("gone"), True),
        (TimeoutError(), True),
    ],
)
def test_only_what_may_pass_is_tried_again(error: Exception, *, worth: bool) -> None:
    assert is_worth_retrying(error) is worth


def test_failures_are_told_together() -> None:
    with pytest.raises(FlowError, match=r"1 of 3 models failed, .*\n  a: it broke"):
        raise_failures("models", {"a": "it broke"}, 3)
    raise_failures("models", {}, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": []}, "at least 1 item"),
        ({"batch_tokens": 0}, "greater than or equal to 1"),
        ({"sites": ["query", "nonsense"]}, "'nonsense' is not a site"),
        ({"modles": ["x"]}, "Extra inputs"),
    ],
)
def test_requests_are_validated(changes: dict[str, object], message: str) -> None:
    from flows.requests import IngestRequest

    with pytest.raises(ValidationError, match=message):
        IngestRequest(**{"models": ["m"], "corpus": "c", **changes})


def test_every_field_of_the_form_explains_itself() -> None:
    from flows.requests import IngestRequest, MeasureRequest, WatchRequest

    for request in (IngestRequest, MeasureRequest, WatchRequest):
        assert all(field.description for field in request.model_fields.values())


def test_a_run_can_be_asked_for_all_that_the_command_can() -> None:
    from dataclasses import fields

    from flows.measurement import MeasureOptions
    from flows.requests import MeasureRequest, WatchRequest

    assert {field.name for field in fields(MeasureOptions)} <= set(MeasureRequest.model_fields)
    asked = MeasureRequest(sites=["query"], populations=["unit"], memory=1 << 30, sample=50)
    expected = MeasureOptions(
        populations=("unit",), sites=("query",), sample=50, memory=1 << 30, scheduler="threads"
    )
    assert asked.measure_options() == expected
    watching = WatchRequest(sources=["x"], corpus="c", sites=["query"], measured_sites=["query"])
    assert watching.measure_options().sites == watching.capture_options().sites == ("query",)


def test_tasks_are_plain_functions(store: str, run_folder: Path) -> None:
    from flows.ingest import ingest_one
    from flows.measure import measure_one
    from flows.measurement import MeasureOptions, find_targets
    from flows.running import CaptureOptions

    checkpoint = find_checkpoints(str(run_folder))[0]
    assert ingest_one.fn(store, checkpoint, "cats", CaptureOptions()).ingested
    assert not ingest_one.fn(store, checkpoint, "cats", CaptureOptions()).ingested
    (target,) = find_targets(Repository.open(store))
    report = measure_one.fn(store, target, MeasureOptions(metrics=("average_cosine",)))
    assert report.computed == 3 * 4  # layers, populations


def test_a_request_can_ask_for_all_that_the_command_line_can(store: str, run_folder: Path) -> None:
    from flows.ingest import _present, ingest_one, ingest_side_by_side
    from flows.requests import IngestRequest
    from flows.sweep import Sweep

    request = IngestRequest(
        models=[str(run_folder)],
        corpus="cats",
        store=store,
        steps=[3, 7],
        steps_table={"checkpoint-5": 7},
        name="named",
        truncate=False,
        workers=2,
    )
    checkpoints, gaps = _present(request)
    assert [(one.model, one.step, one.revision) for one in checkpoints] == [
        ("named", 7, "checkpoint-5")
    ]
    assert list(gaps) == ["named step 3"]
    options = request.capture_options()
    assert not options.truncate
    # One process, so that none is started here; a broken checkpoint among them stops no other.
    gone = replace(checkpoints[0], directory=run_folder / "gone", step=8)
    sweep = Sweep(store, [*checkpoints, gone], "cats", options)
    done, failed = ingest_side_by_side.fn(sweep)
    assert done.result is not None
    assert (done.result.path, done.result.ingested) == ("cats/named", True)
    assert (failed.result, failed.name) == (None, "named step 8")
    assert not ingest_one.fn(store, checkpoints[0], "cats", options, clean_cache=True).ingested
    with pytest.raises(ValidationError, match="name goes with one model"):
        IngestRequest(models=["a", "b"], corpus="c", name="n")


HANGS = """
import sys, threading
from flows.attempts import _process_ended_after
with _process_ended_after(float(sys.argv[1])):
    threading.Event().wait(60)
"""


def test_a_process_that_does_not_heed_its_time_out_is_ended() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", HANGS, "0.2"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "Timeout (0:00:00.2" in ended.stderr
    assert "in wait" in ended.stderr
