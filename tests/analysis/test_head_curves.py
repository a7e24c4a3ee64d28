"""Results by block and head, as curves and figures."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from analysis.curve_values import select
from analysis.curves import curves
from analysis.errors import InputError
from analysis.figures import plot_metric
from store.errors import UnknownNameError

STEPS, BLOCKS, HEADS = [0, 8], [1, 2, 3], [0, 1]


@pytest.fixture
def results() -> xr.Dataset:
    """Return 100·step index + 10·block + head of one model, of its blocks and heads."""
    values = (
        100.0 * np.arange(2)[:, None, None] + 10.0 * np.array(BLOCKS)[:, None] + np.array(HEADS)
    )
    dims = ("model", "step", "block", "head", "population")
    shaped = values[None, ..., None]
    return xr.Dataset(
        {
            "entropy": (dims, shaped, {"long_name": "entropy", "units": "1"}),
            "entropy_stderr": (dims, np.full(shaped.shape, 0.5)),
            "by_order": ((*dims, "order"), np.stack([shaped, 2 * shaped], axis=-1)),
        },
        {
            "model": ["tiny"],
            "step": STEPS,
            "block": BLOCKS,
            "head": HEADS,
            "population": ["content"],
            "order": [1.0, 2.0],
            # Of another result, of some layers only: 6 blocks, so that layer 2 lies at a third.
            "layer": [0, 2],
            "relative_depth": (("model", "layer"), [[0.0, 1 / 3]]),
        },
    )


def test_over_depth_heads_are_averaged_and_kept(results: xr.Dataset) -> None:
    (curve,) = curves(results, "entropy", x="layer", hue="model", population="content")
    np.testing.assert_array_equal(curve.x, BLOCKS)
    np.testing.assert_array_equal(curve.y, [110.5, 120.5, 130.5])
    np.testing.assert_array_equal(curve.stderr, [0.5] * 3)
    assert curve.mean_over == ("heads",)
    np.testing.assert_array_equal(curve.members[1], [111, 121, 131])


def test_blocks_lie_as_deep_as_the_layers_they_give(results: xr.Dataset) -> None:
    (curve,) = curves(results, "entropy", x="relative_depth", hue="model")
    np.testing.assert_allclose(curve.x, [1 / 6, 2 / 6, 3 / 6], rtol=1e-12)
    own = results.drop_vars("layer").assign_coords(
        relative_depth=(("model", "block"), [[0.1, 0.2, 0.3]])
    )
    (curve,) = curves(own, "entropy", x="relative_depth", hue="model")
    np.testing.assert_array_equal(curve.x, [0.1, 0.2, 0.3])


def test_over_steps_blocks_are_drawn_or_the_heads_of_one(results: xr.Dataset) -> None:
    (curve,) = curves(results, "entropy", x="step", hue="model")
    np.testing.assert_array_equal(curve.y, [20.5, 120.5])
    assert curve.mean_over == ("blocks", "heads")
    np.testing.assert_array_equal(curve.members[3], [30.5, 130.5])
    (curve,) = curves(results.sel(block=[2]), "entropy", x="step", hue="model")
    assert curve.mean_over == ("heads",)
    np.testing.assert_array_equal(curve.members[1], [21, 121])


def test_a_figure_says_what_its_thin_lines_are(results: xr.Dataset) -> None:
    title = plot_metric(results, "entropy", x="layer").axes[0].get_title(loc="left")
    assert "mean over heads (thin: each)" in title
    over_steps = plot_metric(results, "entropy", x="step").axes[0].get_title(loc="left")
    assert "mean over blocks and heads (thin: each block)" in over_steps
    one = plot_metric(select(results, "entropy", {"head": ["1"]}), "entropy", x="layer")
    assert "mean" not in one.axes[0].get_title(loc="left")
    np.testing.assert_array_equal(one.axes[0].get_lines()[0].get_ydata(), [111, 121, 131])


def test_heads_that_a_model_has_not_are_no_curves(results: xr.Dataset) -> None:
    wider = results.reindex(head=[0, 1, 2])
    (curve,) = curves(wider, "entropy", x="layer", hue="model")
    np.testing.assert_array_equal(curve.y, [110.5, 120.5, 130.5])
    assert list(curve.members) == [0, 1]


def test_other_dimensions_are_chosen_by_their_labels(results: xr.Dataset) -> None:
    chosen = select(results, "by_order", {"order": ["2"], "head": ["0"]})
    (curve,) = curves(chosen, "by_order", x="layer", hue="model")
    np.testing.assert_array_equal(curve.y, [220, 240, 260])
    with pytest.raises(InputError, match=r"--select order=1.0; there are 1.0, 2.0"):
        curves(results, "by_order", x="layer", hue="model")
    with pytest.raises(UnknownNameError, match=r"no order '3' in by_order; there are: 1.0, 2.0"):
        select(results, "by_order", {"order": ["3"]})
    with pytest.raises(UnknownNameError, match=r"no dimension 'order' in entropy"):
        select(results, "entropy", {"order": ["2"]})


def test_a_step_of_which_only_the_embeddings_are_measured_is_left_out() -> None:
    values = np.array([[1.0, np.nan, np.nan], [1.0, 2.0, 4.0]])
    results = xr.Dataset({"norm": (("step", "layer"), values)}, {"step": STEPS, "layer": [0, 1, 2]})
    (curve,) = curves(results, "norm", x="step", hue="model")
    np.testing.assert_array_equal(curve.x, [8])
    np.testing.assert_array_equal(curve.y, [3])
