"""The Prefect flows, once for real on a server of their own; the rest as plain functions."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pydantic import ValidationError

from analysis.errors import UnknownMetricError
from flows.capture.checkpoints import find_checkpoints
from flows.capture.errors import CheckpointError
from flows.cli import actlas
from flows.corpora import Chunking, add_texts
from flows.failures import FlowError, is_worth_retrying, raise_failures
from store.errors import StoreFullError, UnknownNameError
from store.metrics import read_metrics
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


@dataclass(frozen=True)
class Ran:
    """What the flows did on a run with one broken checkpoint of three."""

    store: str
    ingest_error: str
    again_error: str
    snapshots: tuple[str, str]
    reports: list[dict[str, object]]
    command: Result
    warned: list[bool]
    page: Path
    link: str


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, text: str, run_folder: Path) -> Iterator[Ran]:
    from prefect.testing.utilities import prefect_test_harness

    from flows import deployments
    from flows.ingest import ingest
    from flows.measure import measure
    from flows.prefect_api import prefect_client
    from flows.requests import IngestRequest, MeasureRequest

    folder = tmp_path_factory.mktemp("flows")
    runs = folder / "tiny"
    shutil.copytree(run_folder, runs)
    weights = runs / "checkpoint-5" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    store = str(folder / "store")
    add_texts(store, "cats", {"cats.txt": text}, chunking=Chunking("chars", 50), max_sequences=20)
    request = IngestRequest(models=[str(runs)], corpus="cats", store=store)
    errors, snapshots = [], []
    with prefect_test_harness(server_startup_timeout=300):
        for _ in range(2):
            with pytest.raises(FlowError) as raised:
                ingest(request)
            errors.append(str(raised.value))
            snapshots.append(Repository.open(store).snapshot_id())
        page = folder / "report.html"
        asked = MeasureRequest(store=store, metrics=["average_cosine"], report=str(page))
        reports = measure(asked)
        look = ["flows", "run", str(runs), "--corpus", "cats", "--settle", "0s", "--store", store]
        command = CliRunner().invoke(actlas, [*look, "--metrics", "average_cosine"])
        with prefect_client() as client:
            warned = [deployments._keeps_leases_in_memory(client)]
            left = client.read_artifacts()
        (data,) = (str(one.data) for one in left if one.key == "actlas-report")
        yield Ran(store, *errors, tuple(snapshots), reports, command, warned, page, data)


@pytest.mark.slow
def test_a_broken_checkpoint_is_named_and_stops_no_other(ran: Ran) -> None:
    assert "1 of 3 checkpoints failed" in ran.ingest_error
    assert "tiny step 5: " in ran.ingest_error
    assert "is truncated" in ran.ingest_error
    held = read_metrics(Repository.open(ran.store), "cats/tiny")
    assert held is not None
    assert list(held.step.values) == [0, 10]


@pytest.mark.slow
def test_a_second_run_stores_nothing_new(ran: Ran) -> None:
    assert ran.again_error == ran.ingest_error
    assert ran.snapshots[0] == ran.snapshots[1]


@pytest.mark.slow
def test_metrics_are_measured_by_a_flow(ran: Ran) -> None:
    assert [(report["path"], report["computed"]) for report in ran.reports] == [("cats/tiny", 24)]


@pytest.mark.slow
def test_the_report_is_an_artifact_of_the_run(ran: Ran) -> None:
    assert f"({ran.page.as_uri()})" in ran.link
    assert "average_cosine" in ran.page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_look_through_prefect_ends_as_any_command_does(ran: Ran) -> None:
    assert ran.command.exit_code == 1
    assert "Error: 1 of 1 checkpoints failed" in ran.command.stderr
    assert "tiny step 5: " in ran.command.stderr


@pytest.mark.slow
def test_a_server_that_would_forget_who_runs_is_found_out(ran: Ran) -> None:
    assert ran.warned == [True]


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
