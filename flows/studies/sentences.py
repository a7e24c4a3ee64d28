"""What was measured, as sentences: shapes of curves, and which rows change them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from analysis.curves import Abscissa, Curve
from flows.studies.shape import MARGIN, WORDS, Point, Shape, shape_of, width_at_half_height
from flows.studies.study import Measured, Study

HIGH: Final = 0.9
LOW: Final = 0.15
"""Shares of the first component that are told of, as the curves of the paper fall apart there."""

_PLACES: Final[dict[Abscissa, str]] = {
    "relative_depth": "relative depth",
    "layer": "layer",
    "step": "step",
}


def tell_shapes(
    study: Study, measured: Measured, metric: str, x: Abscissa, models: Sequence[str]
) -> list[str]:
    """Say for each model what a metric does, and whether other rows would say otherwise."""
    told = []
    for model in models:
        rows = measured.shown_population(metric, study.population)
        curve = measured.curve(model, metric, x, rows)
        if curve is None:
            told.append(f"{model}: {metric} has no value for the rows {rows}.")
            continue
        shape = shape_of(curve)
        sentence = f"{model} ({measured.kind(model)}), rows {rows}: {metric} over"
        sentence += f" {'training' if x == 'step' else 'depth'} is {WORDS[shape.kind]}"
        told.append(f"{sentence}; {_course(shape, x)}.")
        if shape.kind == "bell" and x != "step":
            start, end = width_at_half_height(curve)
            told[-1] += (
                f" It is in the upper half of its range from {_PLACES[x]} {start:.2f} to {end:.2f}."
            )
        told.append(tell_populations(study, measured, model, metric, x))
    return told


def tell_populations(study: Study, measured: Measured, model: str, metric: str, x: Abscissa) -> str:
    """Say whether the shape of a curve is the same whatever rows are taken."""
    found = {}
    for population in measured.populations:
        curve = measured.curve(model, metric, x, population)
        if curve is not None:
            found[population] = shape_of(curve)
    kinds = {population: shape.kind for population, shape in found.items()}
    peaks = ", ".join(f"{name} {shape.peak.y:.3g}" for name, shape in found.items())
    if len(kinds) == 1:
        return f"{model}: {metric} was computed for the rows {_list(list(kinds))} alone."
    if len(set(kinds.values())) == 1:
        return (
            f"{model}: the shape of {metric} is the same for {_list(list(kinds))}; peaks: {peaks}."
        )
    rows = measured.shown_population(metric, study.population)
    own = kinds[rows]
    others = [f"{name}: {WORDS[kind]}" for name, kind in kinds.items() if kind != own]
    return (
        f"**{model}: the conclusion flips with the rows.** {metric} is {WORDS[own]} for"
        f" {rows}, but {'; '.join(others)}. Peaks: {peaks}."
    )


def tell_threshold(
    measured: Measured, metric: str, population: str, models: Sequence[str]
) -> list[str]:
    """Say between which values a metric lies over the layers of each model."""
    told = []
    for model in models:
        curve = measured.curve(model, metric, "relative_depth", population)
        if curve is None:
            continue
        middle = curve.y[(curve.x >= 0.25) & (curve.x <= 0.75)]
        inside = f", in its middle half {middle.min():.3g} to {middle.max():.3g}"
        extremes = f"{np.nanmin(curve.y):.3g} and {np.nanmax(curve.y):.3g}"
        told.append(
            f"{model} ({measured.kind(model)}), rows {population}: {metric} lies between"
            f" {extremes}{inside if len(middle) else ''}; {_where_high(curve)}."
        )
    return told


def _where_high(curve: Curve) -> str:
    """Say where a share is above what is called high, or that it is low everywhere."""
    high = np.flatnonzero(curve.y > HIGH)
    if len(high):
        return (
            f"it is above {HIGH} in {len(high)} of {len(curve.y)} layers, from relative depth"
            f" {curve.x[high[0]]:.2f} to {curve.x[high[-1]]:.2f}"
        )
    low = "everywhere" if (curve.y < LOW).all() else f"in {int((curve.y < LOW).sum())} layers"
    return f"it is below {LOW} {low} and nowhere above {HIGH}"


def method_note(measured: Measured) -> str:
    """Say what counts as a difference, and what the standard errors are."""
    return (
        f"A difference counts when it exceeds {MARGIN:g} standard errors of the difference, the two"
        " errors taken as independent. Standard errors are those stored with the metrics: from"
        " leaving out groups of whole sequences, or from disjoint subsamples of neighbours. Means"
        " over blocks leave out layer 0, the embeddings. Results of the corpus"
        f" {measured.corpus} at snapshot {measured.snapshot}."
    )


def _course(shape: Shape, x: Abscissa) -> str:
    peak = f"peak {_value(shape.peak)} at {_place(shape.peak, x)}"
    ends = f"from {_value(shape.first)} at the start to {_value(shape.last)} at the end"
    rise = f"the rise to the peak is {'' if shape.rises else 'not '}beyond the error"
    fall = f"the fall after it is {'' if shape.falls_after else 'not '}beyond the error"
    unknown = "" if shape.has_errors else " (some values have no standard error)"
    trough = f"lowest {_value(shape.trough)} at {_place(shape.trough, x)}"
    return f"{ends}, {peak}, {trough}; {rise}, {fall}{unknown}"


def _value(point: Point) -> str:
    return f"{point.y:.3g}" + (f" ± {point.stderr:.2g}" if np.isfinite(point.stderr) else "")


def _place(point: Point, x: Abscissa) -> str:
    number = f"{point.x:.2f}" if x == "relative_depth" else f"{point.x:.0f}"
    return f"{_PLACES[x]} {number}"


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
