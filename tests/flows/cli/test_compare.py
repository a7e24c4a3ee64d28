"""``actlas compare`` and ``actlas metrics`` as a user has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from analysis import METRICS
from analysis.metrics.heads import HEAD_METRICS
from analysis.metrics.values import VALUE_METRICS
from flows.capture.checkpoints import find_checkpoints
from flows.cli import actlas
from flows.corpora import Chunking, add_texts
from flows.ingestion import ingest_checkpoint


@pytest.fixture(scope="module")
def filled(tmp_path_factory, text, run_folder) -> str:
    """A store with two models of one corpus, one of them with two steps."""
    uri = str(tmp_path_factory.mktemp("compared") / "store")
    add_texts(uri, "cats", {"cats.txt": text}, chunking=Chunking("chars", 50), max_sequences=20)
    for name, steps in (("first", [0, 10]), ("second", [5])):
        for checkpoint in find_checkpoints(str(run_folder), steps=steps, name=name):
            ingest_checkpoint(uri, checkpoint, "cats")
    return uri


def invoke(store: str, *arguments: str, code: int = 0) -> Result:
    environment = {"ACTLAS_STORE": store}
    result = CliRunner().invoke(actlas, list(arguments), env=environment, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


@pytest.mark.parametrize(("over", "matrices"), [("layers", 3), ("steps", 3), ("models", 1)])
def test_what_is_compared_is_kept_and_drawn(
    filled: str, tmp_path: Path, over: str, matrices: int
) -> None:
    figure = tmp_path / "figure.png"
    call = ("compare", over, "--sample", "200", "-o", str(figure), "--json")
    first = json.loads(invoke(filled, *call).output)
    assert (first["computed"], first["up_to_date"]) == (matrices, 0)
    assert figure.stat().st_size > 5000
    again = invoke(filled, "compare", over, "--sample", "200")
    done, following = again.output.splitlines()
    assert done == f"0 matrices computed, {matrices} up to date"
    assert following.startswith("Next: actlas compare ")


def test_one_matrix_is_not_several(filled: str) -> None:
    planned = invoke(filled, "compare", "models", "--sample", "100", "--plan").output
    assert planned.startswith("1 matrix to compute, ")


def test_wrong_measures_and_nothing_to_compare(filled: str) -> None:
    wrong = invoke(filled, "compare", "layers", "--measure", "ckaa", code=2)
    assert "did you mean 'cka'" in wrong.output
    alone = invoke(filled, "compare", "steps", "--models", "second", code=1)
    assert "no two steps of one model" in alone.output


def test_what_needs_more_memory_than_a_worker_has_is_refused(filled: str) -> None:
    call = ("compare", "layers", "--seed", "1", "--memory", "16MiB")
    assert "the memory stated is 16 MiB" in " ".join(invoke(filled, *call, code=1).output.split())


def test_every_metric_is_listed() -> None:
    listed = json.loads(CliRunner().invoke(actlas, ["metrics", "--json"]).output)
    names = [metric["name"] for metric in listed]
    assert names[: len(METRICS)] == list(METRICS)
    # Those of two sites, and of sites of one number a token.
    assert names[len(METRICS) :] == [*HEAD_METRICS, *(metric.name for metric in VALUE_METRICS)]
    assert all(metric["meaning"] and metric["range"] and metric["cost"] for metric in listed)
    assert "rankme" in CliRunner().invoke(actlas, ["metrics"]).output
