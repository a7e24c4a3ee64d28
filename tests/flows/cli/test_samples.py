"""Values of different samples: named by ``show`` and ``plot``, apart in ``diff`` and studies."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from click.testing import Result

from analysis.figures import plot_metric
from analysis.report import write_report
from flows.before_after import tell_differences
from flows.difference_figure import draw_differences
from flows.explore.live import LiveStore
from flows.explore.profiles import _told_samples
from flows.studies import STUDIES
from flows.studies.preparation import Request
from flows.studies.reading import read_measured
from flows.studies.sentences import tell_populations
from store.metrics import Definition, open_metrics, open_settings, write_metrics
from store.repository import Repository

Run = Callable[..., Result]


def write(
    store: str,
    population: str,
    values: Sequence[float],
    stderr: float = 0.1,
    steps: Sequence[int] = (0, 10),
    **settings: int,
) -> None:
    """Store made-up values of two_nn by layer, the same for each step, of the sample given."""
    repository = Repository.open(store)
    dims = ("step", "layer", "population")
    table = np.broadcast_to(np.array(values)[None, :, None], (len(steps), len(values), 1))
    results = xr.Dataset(
        {"two_nn": (dims, table.copy()), "two_nn_stderr": (dims, np.full(table.shape, stderr))},
        {"step": list(steps), "layer": list(range(len(values))), "population": [population]},
    )
    definition = Definition("two_nn", 1, {"seed": 0} | settings)
    write_metrics(
        repository,
        "cats/tiny",
        results,
        snapshot=repository.snapshot_id(),
        definitions=[definition],
    )


@pytest.fixture
def mixed(store: str) -> str:
    """Return the store with two_nn of two samples: 400 for content, 200 for all rows."""
    write(store, "content", [3.0, 4.0, 5.0], sample=400)
    write(store, "all", [2.0, 2.5, 3.0], sample=200)
    return store


def test_settings_lie_beside_the_values(mixed: str) -> None:
    found = open_settings(mixed, ["two_nn", "average_cosine", "gride"], corpus="cats")
    assert set(found) == {"two_nn", "average_cosine"}
    own = found["two_nn"].sel(model="tiny", layer=1)
    assert (own.sel(population="content") == '{"sample":400,"seed":0}').all()
    assert (own.sel(population="all") == '{"sample":200,"seed":0}').all()
    assert (own.sel(population="unit") == "").all()


def test_show_names_the_sample_where_there_is_one(run: Run, mixed: str) -> None:
    for population, sample in (("content", 400), ("all", 200)):
        asked = ("show", "two_nn", "--population", population)
        rows = json.loads(run(*asked, "--json").output)
        assert [(row["sample"], row["seed"]) for row in rows] == [(sample, 0)] * 6
        assert f"two_nn, rows: {population}, sample {sample}, seed 0, with" in run(*asked).output
    header = run("show", "two_nn", "--csv").output.splitlines()[0]
    assert header.endswith("value,stderr,sample,seed,snapshot")
    assert "sample" not in run("show", "average_cosine").output


def test_show_says_that_samples_are_several(run: Run, mixed: str) -> None:
    write(mixed, "content", [3.0, 4.0, 5.0], steps=[10], sample=10_000, exclude_own_sequence=1)
    rows = json.loads(run("show", "two_nn", "--json").output)
    assert [(row["step"], row["sample"], row["exclude_own_sequence"]) for row in rows] == [
        *[(0, 400, "")] * 3,
        *[(10, 10_000, 1)] * 3,
    ]
    several = "several samples: sample 400, seed 0; sample 10,000, seed 0, neighbours in other"
    assert several in run("show", "two_nn").output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--population", "all"], "tiny · rows: all · sample 200, seed 0 · "),
        (["--hue", "population"], "several samples: sample 200, seed 0; sample 400, seed 0 · "),
        # Over depth it is the last step that is drawn, and its sample that is named.
        ([], "tiny · rows: content · sample 50, seed 0 · "),
        (["--x", "step"], "several samples: sample 50, seed 0; sample 400, seed 0"),
    ],
)
def test_a_plot_names_the_samples_that_it_shows(
    run: Run,
    mixed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    told: str,
) -> None:
    if "--population" not in arguments and "--hue" not in arguments:
        write(mixed, "content", [3.0, 4.0, 5.0], steps=[10], sample=50)
    titles = []
    monkeypatch.setattr("analysis.figures._add_title", lambda *each: titles.append(each[2]))
    run("plot", "two_nn", *arguments, "-o", str(tmp_path / "dimension.svg"))
    (parts,) = titles
    assert told in " · ".join(parts)


def test_a_plot_of_results_in_hand_names_them_too(mixed: str) -> None:
    results = open_metrics(mixed, corpus="cats")
    chosen = results.sel(model="tiny", step=10), results.sel(population="content")
    for found in chosen:
        axes = plot_metric(found, "two_nn", x="layer", population="content").axes[0]
        assert "sample 400, seed 0 · " in axes.get_title(loc="left").replace("\n", " ")
    moved = results.assign_attrs(uri=f"{mixed}-elsewhere")
    assert "sample" not in plot_metric(moved, "two_nn").axes[0].get_title(loc="left")


def test_the_explorer_knows_the_sample_of_each_value(mixed: str) -> None:
    write(mixed, "content", [3.0, 4.0, 5.0], steps=[10], sample=50)
    live = LiveStore(mixed)
    values = live.values("cats", "residual", "two_nn", "content", ["tiny"])
    sizes = [
        (step, json.loads(sample)["sample"])
        for step, sample in zip(values.step, values.sample, strict=True)
    ]
    assert sizes == [*[(0, 400)] * 3, *[(10, 50)] * 3]
    told = "Values of several samples: sample 50, seed 0; sample 400, seed 0."
    assert told in _told_samples(values)
    last = values.where(values.step == 10)
    assert _told_samples(last) == "<p>Values of one sample: sample 50, seed 0.</p>"
    cosines = live.values("cats", "residual", "average_cosine", "content", ["tiny"])
    assert set(cosines.sample.tolist()) == {""}
    assert _told_samples(cosines) == ""


def test_the_report_knows_the_sample_of_each_value(mixed: str, tmp_path: Path) -> None:
    page = write_report(mixed, tmp_path / "report.html").read_text("utf-8")
    assert '"settings":[{"sample":200,"seed":0},{"sample":400,"seed":0}]' in page
    assert "two_nn: sample 200, seed 0; sample 400, seed 0" in page


def test_diff_leaves_out_values_of_other_samples(run: Run, mixed: str) -> None:
    run("tag", "first")
    write(mixed, "content", [3.5, 4.1, 5.0], steps=[10], sample=10_000)
    write(mixed, "content", [3.5, 4.1, 5.0], steps=[0], sample=400)
    # Errors of 0.1 on both sides: 0.5 exceeds 2 · 0.1 · √2 = 0.28, and 0.1 does not.
    result = run("diff", "first", "now", "two_nn", "--json")
    rows = json.loads(result.stdout)
    assert [(row["step"], row["layer"], row["beyond_error"]) for row in rows] == [
        (0, 0, "yes"),
        (0, 1, "no"),
        (0, 2, "no"),
    ]
    assert [row["difference"] for row in rows] == pytest.approx([0.5, 0.1, 0.0])
    told = (
        "1 of 3 differences exceed two standard errors of theirs; 3 left out, as their values"
        " before and after have other settings (sample or seed)."
    )
    assert told in result.stderr
    shown = run("diff", "first", "now", "two_nn").output
    assert told in shown
    assert "Values of two_nn: sample 400, seed 0\n" in shown


def test_diff_of_other_samples_alone_is_refused(run: Run, mixed: str) -> None:
    run("tag", "first")
    write(mixed, "content", [3.0, 4.0, 5.0], sample=10_000)
    refused = run("diff", "first", "now", "two_nn", code=1).stderr
    assert "different samples alone (sample 400, seed 0 and sample 10,000, seed 0)" in refused


def test_a_difference_without_a_known_error_is_not_said_to_exceed(run: Run, store: str) -> None:
    write(store, "content", [3.0, 4.0, 5.0], sample=400)
    run("tag", "first")
    write(store, "content", [3.0, 9.0, 5.0], steps=[0], stderr=np.nan, sample=400)
    write(store, "content", [3.0, 9.0, 5.0], steps=[10], sample=400)
    rows = json.loads(run("diff", "first", "now", "two_nn", "--json").stdout)
    assert [row["beyond_error"] for row in rows] == ["?", "?", "?", "no", "yes", "no"]
    told = (
        "1 of 3 differences exceed two standard errors of theirs;"
        " 3 more have no known standard error (?)."
    )
    assert told in run("diff", "first", "now", "two_nn").output


def test_a_model_of_other_samples_alone_has_no_panel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    monkeypatch.setattr("flows.difference_figure.save_figure", lambda *_: None)
    monkeypatch.setattr(
        "flows.difference_figure.draw_panels", lambda _title, panels, **_: drawn.extend(panels)
    )
    values = xr.DataArray(
        [[[1.0, 2.0]], [[np.nan, np.nan]]],
        {"model": ["same", "other"], "step": [0], "layer": [0, 1]},
        ("model", "step", "layer"),
    )
    found = xr.Dataset(dict.fromkeys(("before", "after", "difference", "stderr"), values))
    compared = {"two_nn": {"cats": found}}
    draw_differences(compared, ("a", "b"), "content", tmp_path / "x.png")
    assert [panel.heading for panel in drawn] == ["cats/same step 0"] * 2


def test_what_is_known_of_all_differences_is_said_alone() -> None:
    assert tell_differences([{"beyond_error": "no"}], 0) == (
        "0 of 1 differences exceed two standard errors of theirs."
    )


def test_a_study_leaves_out_what_is_of_another_sample(mixed: str, tmp_path: Path) -> None:
    study = replace(STUDIES["training-dynamics"], metrics=("average_cosine", "two_nn"), derive=None)
    asked = Request(mixed, ("tiny",), None, from_store=True, output=tmp_path, sample=400)
    measured = read_measured(study, asked, {"cats": ["tiny"]})
    found = measured.results.sel(model="tiny", step=10)
    np.testing.assert_array_equal(found["two_nn"].sel(population="content"), [3.0, 4.0, 5.0])
    for name in ("two_nn", "two_nn_stderr"):
        assert found[name].sel(population="all").isnull().all()
    assert found["average_cosine"].notnull().all()
    assert tell_populations(study, measured, "tiny", "two_nn", "layer") == (
        "tiny: two_nn was computed for the rows content alone."
    )

    other_seed = read_measured(study, replace(asked, seed=1), {"cats": ["tiny"]})
    assert other_seed.results["two_nn"].isnull().all()
