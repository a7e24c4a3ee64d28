"""Shapes of made-up curves, whose answers are worked out beside them."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.curves import Curve
from flows.studies.shape import Point, shape_of, width_at_half_height


def curve(values: list[float], error: float = 0.1) -> Curve:
    y = np.array(values)
    x = np.linspace(0.0, 1.0, len(values))
    return Curve("made up", x, y, np.full(len(values), error), {})


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        # Two errors of a difference are 2 · √(0.1² + 0.1²) = 0.283.
        ([0.0, 1.0, 0.0], "bell"),
        ([0.0, 0.25, 0.0], "flat"),
        ([0.0, 0.3, 0.0], "bell"),
        ([0.0, 0.5, 0.9, 1.0, 0.95, 0.2], "bell"),
        # The dip of 0.2 before the peak is within the error, the dip of 0.5 is not.
        ([0.0, 0.6, 0.4, 1.0, 0.2], "bell"),
        ([0.0, 0.7, 0.2, 1.0, 0.2], "humps"),
        ([0.0, 1.0, 0.2, 0.7, 0.0], "humps"),
        ([0.0, 0.5, 1.0], "rises"),
        # The fall after the peak, 0.2, is within the error.
        ([0.0, 1.0, 0.8], "rises"),
        ([1.0, 0.5, 0.0], "falls"),
        ([1.0, 0.0, 1.0], "valley"),
        # Only its lowest point differs from its highest; the ends lie between: 0.2 from either.
        ([0.2, 0.4, 0.0, 0.2], "irregular"),
    ],
)
def test_a_shape_counts_differences_beyond_two_errors(values: list[float], kind: str) -> None:
    assert shape_of(curve(values)).kind == kind


def test_peak_and_ends_are_where_they_are() -> None:
    found = shape_of(curve([0.1, 0.4, 0.9, 0.3, 0.2]))
    assert found.first == Point(0.0, 0.1, 0.1)
    assert found.peak == Point(0.5, 0.9, 0.1)
    assert found.trough == found.first
    assert found.last == Point(1.0, 0.2, 0.1)
    assert found.rises
    assert found.falls_after
    assert found.has_errors


def test_a_rise_without_a_fall_is_told_apart() -> None:
    found = shape_of(curve([0.0, 1.0, 0.9]))
    assert found.rises
    assert not found.falls_after


def test_unknown_errors_count_as_none_and_are_told() -> None:
    found = shape_of(curve([0.0, 0.01, 0.0], error=float("nan")))
    assert found.kind == "bell"
    assert not found.has_errors


def test_points_without_a_value_are_left_out() -> None:
    found = shape_of(curve([np.nan, 0.0, 1.0, 0.0, np.nan]))
    assert found.kind == "bell"
    assert (found.first.x, found.last.x) == (0.25, 0.75)


def test_a_curve_without_values_is_refused() -> None:
    with pytest.raises(ValueError, match="made up has no value"):
        shape_of(curve([np.nan, np.nan]))


def test_the_upper_half_is_the_part_around_the_peak() -> None:
    # Half height is (1 + 0)/2 = 0.5; the first 0.6 is cut off by the 0.1 after it.
    assert width_at_half_height(curve([0.6, 0.1, 0.5, 1.0, 0.0])) == (0.5, 0.75)
    assert width_at_half_height(curve([0.0, 1.0])) == (1.0, 1.0)
