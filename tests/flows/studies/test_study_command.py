"""One study end to end on a tiny training run, and what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import xarray as xr
from click.testing import CliRunner, Result

from flows.cli import actlas
from flows.studies import STUDIES
from flows.studies.errors import StudyError
from flows.studies.preparation import Request
from flows.studies.sources import MODEL_SETS
from flows.studies.study import Study

FIGURE_FILES = {f"{name}.{s}" for name in ("depth", "training", "controls") for s in ("png", "pdf")}


def study(store: str, *arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(
        actlas, ["study", *arguments], env={"ACTLAS_STORE": store}, catch_exceptions=False
    )
    assert result.exit_code == code, result.output
    return result


@pytest.mark.usefixtures("unlaid_figures")
def test_a_study_runs_what_is_missing_and_then_finds_it(
    store: str, run_folder: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    asked = ("shape-of-learning", "--models", str(run_folder), "--sample", "400")
    first = tmp_path / "first"
    result = study(store, *asked, "--controls", "-o", str(first))
    assert "cats/tiny step 10: stored" in result.output
    written = {file.name for file in first.iterdir()}
    assert FIGURE_FILES | {"numbers.csv", "numbers.nc", "account.md", "depth.svg"} <= written

    with (first / "numbers.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    # svd_anisotropy: 3 steps of 3 layers for 4 populations; two_nn: for content alone.
    assert sum(row["metric"] == "svd_anisotropy" for row in rows) == 36
    with xr.open_dataset(first / "numbers.nc") as numbers:
        assert numbers["svd_anisotropy"].dims == ("model", "step", "layer", "population")
        values = numbers["svd_anisotropy"].sel(model="tiny", step=5, layer=1, population="all")
        (row,) = (
            row
            for row in rows
            if (row["metric"], row["step"], row["layer"], row["population"])
            == ("svd_anisotropy", "5", "1", "all")
        )
        # The table has ten significant digits.
        assert float(row["value"]) == pytest.approx(float(values), rel=1e-9)
    account = (first / "account.md").read_text()
    assert "tiny (decoder), rows all: svd_anisotropy over depth is" in account
    assert "steps 0, 5, 10; rows of a layer over cats: all" in account

    # What others computed from a sample of their own is none of the study's numbers.
    other = ("two_nn", "--sample", "200", "--populations", "all", "--store", store)
    computed = CliRunner().invoke(actlas, ["compute", *other], catch_exceptions=False)
    assert "9 values computed" in computed.output

    request.getfixturevalue("quick_figures")
    second = tmp_path / "second"
    again = study(
        store,
        *asked[:1],
        "--models",
        "tiny",
        *asked[3:],
        "--controls",
        "--from-store",
        "-o",
        str(second),
    )
    assert " 0 values computed" in again.output
    assert (second / "numbers.csv").read_bytes() == (first / "numbers.csv").read_bytes()
    told = (second / "account.md").read_text()
    assert "tiny: two_nn was computed for the rows content alone." in told


def test_from_the_store_alone_what_is_missing_is_named(store: str, tmp_path: Path) -> None:
    asked = ("drift", "--models", "nothing", "--from-store", "-o", str(tmp_path / "out"))
    result = study(store, *asked, code=1)
    assert "lacks over the corpus cats: nothing. Leave out --from-store" in result.output
    assert not (tmp_path / "out").exists()


def test_one_study_that_fails_stops_no_other(
    store: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(asked: Study, request: Request, **_: object) -> list[Path]:
        if asked.name == "sharpness":
            raise StudyError("no block stores its attention")
        return [request.output / "account.md"]

    monkeypatch.setattr("flows.studies.run.run_study", run)
    several = ("drift", "sharpness", "characters", "drift")
    result = study(store, *several, "-o", str(tmp_path), code=1)
    written = [str(tmp_path / name / "account.md") for name in ("drift", "characters")]
    assert [line.split()[-1] for line in result.output.splitlines() if "Wrote" in line] == written
    assert "1 of 3 studies failed, the others are done:" in result.output
    assert "sharpness: no block stores its attention" in result.output

    listed = CliRunner().invoke(actlas, ["study", "all", "--json", "-o", str(tmp_path)])
    assert listed.exit_code == 1
    documents = json.loads(listed.stdout)
    assert [one["study"] for one in documents] == [name for name in STUDIES if name != "sharpness"]
    assert documents[0]["files"] == [str(tmp_path / documents[0]["study"] / "account.md")]

    alone = study(store, "sharpness", code=1)
    assert alone.output.strip().splitlines() == ["Error: no block stores its attention"]


def test_an_unknown_study_is_told_with_a_near_name(store: str) -> None:
    result = study(store, "drift", "drfit", code=2)
    assert "no study 'drfit'; did you mean 'drift'?" in result.output


def test_all_studies_are_listed() -> None:
    listed = study("nowhere", "LIST").output
    assert all(name in listed for name in STUDIES)


@pytest.mark.parametrize("models", MODEL_SETS.values(), ids=MODEL_SETS)
def test_each_set_has_what_every_study_needs(models: tuple) -> None:
    needs = {source.need for source in models}
    for asked in STUDIES.values():
        assert needs & asked.needs
    assert all(source.steps == tuple(sorted(set(source.steps))) for source in models)
    assert len({(source.name, source.need) for source in models}) == len(models)
