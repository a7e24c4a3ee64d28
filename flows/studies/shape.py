"""What a curve does, beyond its standard error: rises, falls, a bell, and where its peak is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from analysis.curves import Curve

Kind: TypeAlias = Literal["flat", "bell", "humps", "rises", "falls", "valley", "irregular"]

MARGIN: Final = 2.0
"""Standard errors of a difference that it has to exceed to count."""

WORDS: Final[dict[Kind, str]] = {
    "flat": "flat within the error",
    "bell": "a bell: it rises, then falls",
    "humps": "several humps, the highest inside",
    "rises": "rising",
    "falls": "falling",
    "valley": "a valley: it falls, then rises",
    "irregular": "neither rising nor falling as a whole",
}


@dataclass(frozen=True)
class Point:
    """One point of a curve.

    Attributes:
        x: Where it is.
        y: Its value.
        stderr: Standard error of the value, NaN if unknown.
    """

    x: float
    y: float
    stderr: float

    def above(self, other: Point) -> bool:
        """Tell whether it is higher than another one beyond the error of the difference.

        The errors are taken as independent. Points of one curve read the same sequences, so that
        theirs go together and the true error of the difference is smaller: the test is strict.
        An unknown error counts as none.
        """
        error = np.hypot(np.nan_to_num(self.stderr), np.nan_to_num(other.stderr))
        return bool(self.y - other.y > MARGIN * error)


@dataclass(frozen=True)
class Shape:
    """What a curve does from its first point to its last.

    Attributes:
        kind: Its shape in a word.
        first: Its first point.
        peak: Its highest point, the first of equals.
        trough: Its lowest point, the first of equals.
        last: Its last point.
        has_errors: Whether every value has a standard error; without one, a difference counts
            however small.
    """

    kind: Kind
    first: Point
    peak: Point
    trough: Point
    last: Point
    has_errors: bool

    @property
    def rises(self) -> bool:
        """Whether the peak is above the first point, beyond the error."""
        return self.peak.above(self.first)

    @property
    def falls_after(self) -> bool:
        """Whether the last point is below the peak, beyond the error."""
        return self.peak.above(self.last)


def shape_of(curve: Curve) -> Shape:
    """Find out what a curve does, counting differences of more than two standard errors.

    A bell rises to a peak inside and falls after it, with no second hump beyond the error.

    Args:
        curve: Its points, of which at least one has a value.

    Raises:
        ValueError: If no point has a value.
    """
    known = np.flatnonzero(np.isfinite(curve.y))
    if len(known) == 0:
        raise ValueError(f"the curve {curve.label} has no value")
    points = [Point(float(curve.x[i]), float(curve.y[i]), float(curve.stderr[i])) for i in known]
    peak = int(np.argmax(curve.y[known]))
    trough = int(np.argmin(curve.y[known]))
    return Shape(
        kind=_kind(points, peak, trough),
        first=points[0],
        peak=points[peak],
        trough=points[trough],
        last=points[-1],
        has_errors=bool(np.isfinite(curve.stderr[known]).all()),
    )


def width_at_half_height(curve: Curve) -> tuple[float, float]:
    """Return the part of the abscissa on which a curve is in the upper half of its range.

    The part is the contiguous one around the peak, between points, without interpolation.
    """
    known = np.isfinite(curve.y)
    x, y = curve.x[known], curve.y[known]
    peak = int(np.argmax(y))
    below = np.flatnonzero(y < (y.max() + y.min()) / 2)
    before, after = below[below < peak], below[below > peak]
    start = before[-1] + 1 if len(before) else 0
    end = after[0] - 1 if len(after) else len(y) - 1
    return float(x[start]), float(x[end])


def _kind(points: list[Point], peak: int, trough: int) -> Kind:
    first, last, top, bottom = points[0], points[-1], points[peak], points[trough]
    if not top.above(bottom):
        return "flat"
    if top.above(first) and top.above(last):
        humped = _has_fall(points[: peak + 1]) or _has_fall(points[peak:][::-1])
        return "humps" if humped else "bell"
    if first.above(bottom) and last.above(bottom):
        return "valley"
    if last.above(first):
        return "rises"
    return "falls" if first.above(last) else "irregular"


def _has_fall(points: list[Point]) -> bool:
    """Tell whether any point is below an earlier one beyond the error."""
    return any(earlier.above(later) for i, later in enumerate(points) for earlier in points[:i])
