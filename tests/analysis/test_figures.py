"""Figures: which curves are drawn, how they are labelled, what is written."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from analysis.curves import curves
from analysis.errors import (
    AnalysisError,
    InputError,
    UnknownMetricError,
    UnknownPopulationError,
)
from analysis.figures import plot_metric, plot_metrics

STEPS = [0, 1, 4, 16, 64, 256]


@pytest.fixture
def results() -> xr.Dataset:
    """Two models of 3 and 5 layers; the second holds no step beyond 16, and no layer too many.

    Values are 100 model + 10 (index of step) + layer, less 0.5 in the second population.
    """
    model, step, layer, population = np.ix_(range(2), range(6), range(5), range(2))
    values = 100.0 * model + 10.0 * step + layer - 0.5 * population
    values[0, :, 3:] = np.nan
    values[1, 4:] = np.nan
    dims = ("model", "step", "layer", "population")
    attributes = {"long_name": "norm of the mean row", "units": "activation"}
    return xr.Dataset(
        {
            "drift_norm": (dims, values, attributes),
            "drift_norm_stderr": (dims, np.where(np.isfinite(values), 0.25, np.nan)),
            "spectrum": (("model", "component"), np.ones((2, 3))),
        },
        coords={
            "model": ["small", "large"],
            "step": STEPS,
            "layer": range(5),
            "population": ["all", "content"],
        },
    )


def test_a_long_name_stays_within_the_figure(results: xr.Dataset) -> None:
    name = "share of the variance along the ten largest principal components of a model's rows"
    results["drift_norm"].attrs["long_name"] = name
    figure = plot_metric(results, "drift_norm")
    figure.draw_without_rendering()
    label = figure.axes[0].yaxis.label
    assert label.get_text().split() == [*name.split(), "[activation]"]
    extent = label.get_window_extent()
    assert extent.y0 >= 0
    assert extent.y1 <= figure.bbox.height


def test_depth_curves_take_the_last_step_and_the_layers_of_each_model(results: xr.Dataset) -> None:
    small, large = curves(results, "drift_norm", x="relative_depth", hue="model")
    assert (small.label, large.label) == ("small", "large")
    np.testing.assert_array_equal(small.x, [0, 0.5, 1])
    np.testing.assert_array_equal(small.y, [50, 51, 52])
    np.testing.assert_array_equal(small.stderr, [0.25] * 3)
    np.testing.assert_array_equal(large.x, [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_array_equal(large.y, [130, 131, 132, 133, 134])


def test_stored_relative_depth_is_used(results: xr.Dataset) -> None:
    depths = [[0, 0.4, 0.8, np.nan, np.nan], [0, 0.1, 0.2, 0.3, 0.4]]
    stored = results.assign_coords(relative_depth=(("model", "layer"), depths))
    small, large = curves(stored, "drift_norm", x="relative_depth", hue="model")
    np.testing.assert_array_equal(small.x, [0, 0.4, 0.8])
    np.testing.assert_array_equal(large.x, [0, 0.1, 0.2, 0.3, 0.4])


def test_step_curves_are_means_over_blocks(results: xr.Dataset) -> None:
    small, large = curves(results, "drift_norm", x="step", hue="model", population="content")
    np.testing.assert_array_equal(small.x, STEPS)
    # Of layers 1 and 2: the embeddings are no block.
    np.testing.assert_array_equal(small.y, 10.0 * np.arange(6) + 1.5 - 0.5)
    # Layers share their tokens: the mean is as uncertain as they are.
    np.testing.assert_array_equal(small.stderr, [0.25] * 6)
    np.testing.assert_array_equal(small.members[2], 10.0 * np.arange(6) + 2 - 0.5)
    np.testing.assert_array_equal(large.x, STEPS[:4])
    assert list(large.members) == [1, 2, 3, 4]
    (embeddings,) = curves(results.isel(model=[0], layer=[0]), "drift_norm", x="step", hue="model")
    np.testing.assert_array_equal(embeddings.y, 10.0 * np.arange(6))


def test_step_and_population_as_hue(results: xr.Dataset) -> None:
    small = results.sel(model="small")
    assert [c.label for c in curves(small, "drift_norm", x="layer", hue="step")] == [
        str(step) for step in STEPS
    ]
    populations = curves(small, "drift_norm", x="step", hue="population")
    assert [c.label for c in populations] == ["all", "content"]
    with pytest.raises(InputError, match="one model, but the results hold small, large"):
        curves(results, "drift_norm", x="layer", hue="step")


def test_a_single_layer_set_without_model_step_or_population(results: xr.Dataset) -> None:
    bare = results.drop_vars("drift_norm_stderr").isel(model=0, step=0, population=0, drop=True)
    (curve,) = curves(bare, "drift_norm", x="layer", hue="model")
    np.testing.assert_array_equal(curve.y, [0, 1, 2])
    assert np.isnan(curve.stderr).all()
    plot_metric(bare, "drift_norm", x="layer")


def test_panels_are_labelled_and_say_what_they_show(results: xr.Dataset) -> None:
    figure = plot_metric(results, "drift_norm")
    (axes,) = figure.axes
    assert axes.get_ylabel() == "norm of the mean row [activation]"
    assert axes.get_xlabel() == "relative depth (layer / number of blocks)"
    assert axes.get_title(loc="left") == "rows: all · last step · band: ± standard error"
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["small", "large"]


def test_curves_differ_in_line_and_marker_as_well_as_colour(results: xr.Dataset) -> None:
    first, second = plot_metric(results, "drift_norm").axes[0].get_lines()
    for trait in ("get_color", "get_linestyle", "get_marker"):
        assert getattr(first, trait)() != getattr(second, trait)()


def test_many_curves_put_the_legend_outside(results: xr.Dataset) -> None:
    figure = plot_metric(results.sel(model="small"), "drift_norm", x="layer", hue="step")
    assert figure.axes[0].get_legend() is None
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [str(s) for s in STEPS]


def test_steps_spaced_by_powers_get_a_logarithmic_axis_that_shows_zero(results: xr.Dataset) -> None:
    axes = plot_metric(results, "drift_norm", x="step").axes[0]
    assert axes.get_xscale() == "symlog"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [str(step) for step in STEPS]
    assert (
        plot_metric(results.isel(step=slice(1, None)), "drift_norm", x="step").axes[0].get_xscale()
        == "log"
    )
    even = results.assign_coords(step=[0, 100, 200, 300, 400, 500])
    assert plot_metric(even, "drift_norm", x="step").axes[0].get_xscale() == "linear"


def test_rows_are_those_of_which_there_are_values(results: xr.Dataset) -> None:
    content = results["drift_norm"].where(results["population"] == "content")
    found = results.assign(drift_norm=content)
    (axes,) = plot_metric(found, "drift_norm").axes
    assert axes.get_title(loc="left").startswith("rows: content · ")
    with pytest.raises(InputError, match="is missing for these rows; there are some for content"):
        plot_metric(found, "drift_norm", population="all")
    # Panels of one figure are about the same rows.
    both = found.assign(second=results["drift_norm"])
    assert "rows: content" in plot_metrics(both, ["second", "drift_norm"]).get_suptitle()


def test_few_steps_have_ticks_at_whole_numbers(results: xr.Dataset) -> None:
    for steps in ([0, 1], [0, 1, 2], [3]):
        few = results.isel(step=range(len(steps))).assign_coords(step=steps)
        axes = plot_metric(few, "drift_norm", x="step").axes[0]
        low, high = axes.get_xlim()
        ticks = [tick for tick in axes.get_xticks() if low <= tick <= high]
        assert ticks == steps


def test_panels_share_one_legend(results: xr.Dataset) -> None:
    both = results.assign(second=results["drift_norm"] * 2)
    figure = plot_metrics(both, ["drift_norm", "second"], x="step", title="Over training")
    assert len(figure.axes) == 2
    assert len(figure.legends) == 1
    assert figure.get_suptitle().startswith("Over training · rows: all · mean over blocks")


def test_one_model_names_itself_and_numbers_its_layers(results: xr.Dataset) -> None:
    apart = results.isel(model=[0]) + 10.0 * results["layer"]
    axes = plot_metric(apart, "drift_norm", x="step").axes[0]
    assert axes.get_title(loc="left").startswith("small · rows: all")
    assert [text.get_text() for text in axes.texts] == ["1", "2"]


@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_files_are_written_alike_each_time(
    results: xr.Dataset, tmp_path: Path, suffix: str
) -> None:
    first, second = tmp_path / "deep" / f"a{suffix}", tmp_path / f"b{suffix}"
    plot_metric(results, "drift_norm", output=first)
    plot_metric(results, "drift_norm", output=second)
    assert first.read_bytes() == second.read_bytes()
    magic = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}[suffix]
    assert first.read_bytes().startswith(magic)


def test_pyplot_and_its_backend_are_left_alone(results: xr.Dataset) -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    plot_metric(results, "drift_norm")
    assert dict(mpl.rcParams) == before


def test_errors(results: xr.Dataset, tmp_path: Path) -> None:
    with pytest.raises(UnknownMetricError, match="did you mean 'drift_norm'"):
        plot_metric(results, "drift_nrom")
    with pytest.raises(UnknownPopulationError, match="'content'"):
        plot_metric(results, "drift_norm", population="contents")
    with pytest.raises(InputError, match=r"also depends on component.*isel\(component=0\)"):
        plot_metric(results, "spectrum")
    with pytest.raises(InputError, match="cannot both"):
        plot_metric(results, "drift_norm", x="step", hue="step")
    with pytest.raises(InputError, match=r"one of \.png, \.pdf, \.svg"):
        plot_metric(results, "drift_norm", output=tmp_path / "figure.bmp")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="every value of drift_norm is missing"):
        plot_metric(results * np.nan, "drift_norm")


def test_a_missing_matplotlib_says_what_to_install(
    results: xr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_module = builtins.__import__

    def without_matplotlib(name: str, *rest: Any, **options: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return import_module(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without_matplotlib)
    with pytest.raises(AnalysisError, match=r"pip install 'actlas\[plots\]'"):
        plot_metric(results, "drift_norm")


def test_stages_of_a_model_are_one_curve_over_relative_depth():
    names = ["resnet/stage1", "resnet/stage2", "vit"]
    depths = [[0.0, 0.25, np.nan], [0.5, 0.75, 1.0], [0.0, 0.5, 1.0]]
    results = xr.Dataset(
        {"two_nn": (("model", "step", "layer", "population"), np.ones((3, 1, 3, 1)))},
        {
            "model": names,
            "step": [0],
            "layer": [0, 1, 2],
            "population": ["all"],
            "relative_depth": (("model", "layer"), depths),
        },
    )
    results.two_nn[0, 0, 2, 0] = np.nan
    joined = curves(results, "two_nn", x="relative_depth", hue="model")
    assert [curve.label for curve in joined] == ["resnet", "vit"]
    assert joined[0].x.tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert len(curves(results, "two_nn", x="layer", hue="model")) == 3
