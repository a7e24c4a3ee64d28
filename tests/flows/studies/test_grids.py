"""How figures of one metric against another space their axes."""

from __future__ import annotations

import numpy as np
import pytest

from flows.studies.grids import space_norms

pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.mark.parametrize(
    ("norms", "scale"),
    [
        pytest.param([[7.1, 8.0], [8.8]], "linear", id="one order"),
        pytest.param([[0.9, 4.0], [9.0]], "log", id="ten times"),
        pytest.param([[0.0, 4.0], [900.0]], "linear", id="no logarithm of nothing"),
        pytest.param([[np.nan, 1.0], [2.0]], "linear", id="a layer without a value"),
        pytest.param([[np.nan]], "linear", id="no value"),
    ],
)
def test_norms_are_spaced_by_their_logarithm_where_they_are_of_different_orders(
    norms: list[list[float]], scale: str
) -> None:
    figure, axes = pyplot.subplots()
    space_norms(axes, [np.array(curve) for curve in norms])
    assert axes.get_xscale() == scale
    pyplot.close(figure)
