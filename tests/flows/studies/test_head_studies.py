"""Queries, keys and sharpness over two tiny runs that differ in their seed."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from analysis.attention import summarise_attention
from analysis.errors import InputError, UnknownPopulationError
from flows.cli import actlas
from flows.studies.heads import SHARPNESS
from store import open_store
from store.repository import Repository


@pytest.fixture
def two_runs(run_folder: Path, tmp_path: Path) -> list[str]:
    """Return the run and another one, whose steps 5 and 10 have changed places."""
    other = tmp_path / "tiny-seed1"
    shutil.copytree(run_folder / "checkpoint-0", other / "checkpoint-0")
    for step, source in ((5, 10), (10, 5)):
        shutil.copytree(run_folder / f"checkpoint-{source}", other / f"checkpoint-{step}")
    return [str(run_folder), str(other)]


@pytest.mark.usefixtures("quick_figures")
def test_queries_keys_and_sharpness_over_seeds(
    store: str, two_runs: list[str], tmp_path: Path
) -> None:
    for name, figures in (
        ("queries-keys", {"training.svg"}),
        ("sharpness", {"training.svg", "quantiles.svg"}),
    ):
        out = tmp_path / name
        arguments = ["study", name, "--models", ",".join(two_runs), "-o", str(out)]
        result = CliRunner().invoke(actlas, [*arguments, "--store", store], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        assert figures <= {file.name for file in out.iterdir()}

    account = (tmp_path / "queries-keys" / "account.md").read_text()
    # 2 blocks of 2 heads, by two seeds.
    assert "tiny: at the last step, of 8 heads (of all seeds)" in account
    assert "tiny: decoder, 2 seeds, 3 layers, steps 0, 5, 10" in account
    account = (tmp_path / "sharpness" / "account.md").read_text()
    # Step 0 is the same twice: no spread. Both seeds hold the same two others: nearly none in sum.
    assert " ± 0 at step 0 to " in account

    with (tmp_path / "queries-keys" / "numbers.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    cosines = [
        float(row["value"])
        for row in rows
        if row["metric"] == "cosine_mean_query_key" and row["model"] == "tiny"
    ]
    assert len(cosines) == 3 * 2 * 2
    _compare_with_rows(store, cosines)
    _check_summary(store)


def _compare_with_rows(store: str, cosines: list[float]) -> None:
    """Compute the cosines of the last block again from the rows."""
    model = open_store(store)["cats/tiny"].to_dataset()
    content = ((model["position"] > 0) & ~model["special"]).values
    means = [
        model[site].isel(token=content).mean("token").astype(float).values
        for site in ("query", "key")
    ]
    products = (means[0] * means[1]).sum(-1)
    expected = products / np.prod([np.linalg.norm(mean, axis=-1) for mean in means], axis=0)
    np.testing.assert_allclose(cosines, expected.ravel(), rtol=1e-4, atol=1e-6)


def _check_summary(store: str) -> None:
    snapshot = Repository.open(store).snapshot_id()
    found = summarise_attention(
        store, "cats/tiny", snapshot, sites=["attention_max"], steps=[10], population="all"
    )
    rows = open_store(store)["cats/tiny"].to_dataset()["attention_max"].sel(step=10)
    np.testing.assert_allclose(
        found["attention_max"].sel(step=10), rows.astype(float).mean("token"), rtol=1e-6
    )
    np.testing.assert_allclose(
        found["attention_max_quantile"].sel(step=10, quantile=0.5),
        rows.astype(float).median("token"),
        rtol=1e-6,
    )
    with pytest.raises(UnknownPopulationError):
        summarise_attention(
            store, "cats/tiny", snapshot, sites=["attention_max"], steps=[10], population="typical"
        )
    with pytest.raises(InputError, match=r"expected \(head, token\)"):
        summarise_attention(store, "cats/tiny", snapshot, sites=["query"], steps=[10])


def test_what_a_stored_step_lacks_is_named(store: str, run_folder: Path, tmp_path: Path) -> None:
    ingested = CliRunner().invoke(
        actlas, ["ingest", str(run_folder), "--corpus", "cats", "--steps", "0,5", "--store", store]
    )
    assert ingested.exit_code == 0, ingested.output
    arguments = ["study", "sharpness", "--models", "tiny", "--from-store", "--store", store]
    result = CliRunner().invoke(actlas, [*arguments, "-o", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert "tiny (steps 0, 5 with the sites attention_logit_deviation" in result.output
    assert SHARPNESS.name == "sharpness"
