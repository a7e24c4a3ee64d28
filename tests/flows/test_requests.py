"""What `actlas watch` is told by options, a run through Prefect is told by its request."""

from __future__ import annotations

import sys
from datetime import timedelta
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from flows.capture.chosen import RowChoice
from flows.cli import actlas
from flows.job import CaptureOptions
from flows.measurement import MeasureOptions
from flows.requests import WatchRequest
from flows.survey import Watched

CAPTURE = CaptureOptions(
    sites=("query", "module:layers.{i}.mlp"),
    blocks="layers",
    layers=(1, 2),
    device="cpu",
    dtype="bfloat16",
    batch_tokens=64,
    precision="float16",
    codec="lz4",
    allow_nonfinite=True,
    supersede=True,
    truncate=False,
)


@pytest.mark.parametrize("rows", [RowChoice("last"), RowChoice("sample", 3), RowChoice()])
def test_a_request_says_all_that_a_watcher_is_told(rows: RowChoice) -> None:
    capture = CaptureOptions(**{**vars(CAPTURE), "rows": rows})
    measure = MeasureOptions(metrics=("two_nn",), memory=5, sites=("query",), scheduler="local:2")
    watched = Watched("store", ("a", "b"), "cats", capture, measure, settle=3, trusted=True)
    request = WatchRequest.of(watched)
    assert request.capture_options() == capture
    assert request.measure_options() == measure
    assert (request.store, request.sources, request.corpus) == ("store", ["a", "b"], "cats")
    assert (request.settle, request.measure, request.trust_remote_code) == (3, True, True)
    assert not WatchRequest.of(Watched("store", ("a",), "cats", measure=None)).measure
    assert WatchRequest.model_validate(request.model_dump()) == request


def test_serving_takes_the_options_of_watching(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[tuple[WatchRequest, timedelta]] = []
    fake = SimpleNamespace(serve_watch=lambda request, *, every: served.append((request, every)))
    monkeypatch.setitem(sys.modules, "flows.serving", fake)
    arguments = [
        "flows",
        "serve",
        "runs",
        "--corpus",
        "cats",
        "--every",
        "5m",
        "--metrics",
        "two_nn",
    ]
    arguments += ["--sites", "query", "--layers", "0:2", "--codec", "lz4", "--trust-remote-code"]
    done = CliRunner().invoke(actlas, [*arguments, "--memory", "1GiB"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    ((request, every),) = served
    assert (request.sites, request.layers, request.codec) == (["query"], [0, 1], "lz4")
    assert (request.trust_remote_code, request.metrics, request.memory) == (True, ["two_nn"], 2**30)
    assert every == timedelta(minutes=5)
