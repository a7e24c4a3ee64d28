"""The figures of the explorer, and what fills them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log10
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from bokeh.models import (
    BasicTicker,
    BoxSelectTool,
    ColumnDataSource,
    CustomJSTickFormatter,
    FixedTicker,
    HoverTool,
    Range1d,
    TapTool,
)
from bokeh.plotting import figure

from analysis.samples import tell_samples
from analysis.token_map import Plane
from analysis.token_sample import TokenSample
from flows.explore.live import Values
from flows.explore.style import tooltip

Reals: TypeAlias = npt.NDArray[np.float64]

HEIGHT: Final = 340
MOST_STEP_TICKS: Final = 6
"""Labels along training for which there is room on a narrow screen."""

MOST_CURVES: Final = 6
"""Steps or layers of one model that are drawn: more could not be told apart."""


@dataclass(frozen=True)
class Chart:
    """A figure of curves with points.

    Attributes:
        figure: The figure.
        lines: One row a curve.
        points: One row a value.
    """

    figure: figure
    lines: ColumnDataSource
    points: ColumnDataSource


def curve_chart(name: str, x: str, *, brush: bool) -> Chart:
    """Return an empty figure of curves with error bars and values on hover."""
    plot = figure(
        name=name,
        visible=False,
        height=HEIGHT,
        sizing_mode="stretch_width",
        min_width=280,
        tools="reset",
        toolbar_location=None,
        x_axis_label=x,
        x_range=Range1d(),
        y_range=Range1d(),
    )
    lines = ColumnDataSource(data={"xs": [], "ys": [], "colour": [], "alpha": []})
    points = ColumnDataSource(data={name: [] for name in _POINT_COLUMNS})
    plot.multi_line("xs", "ys", source=lines, color="colour", alpha="alpha", line_width=2)
    plot.segment("x", "low", "x", "high", source=points, color="colour", alpha="alpha")
    dots = plot.scatter("x", "y", source=points, color="colour", alpha="alpha", size=6)
    tips = [
        ("model", "@model"),
        ("step", "@step"),
        ("layer or block", "@layer"),
        ("value", "@y{0.0000}"),
        ("bar", "@bar"),
        ("sample", "@sample"),
    ]
    plot.add_tools(HoverTool(renderers=[dots], tooltips=tooltip(tips), show_arrow=False))
    if not brush:
        plot.xaxis.ticker = BasicTicker(min_interval=1, num_minor_ticks=0)
    else:
        box = BoxSelectTool(dimensions="width", persistent=False)
        plot.add_tools(box)
        plot.toolbar.active_drag = box
    return Chart(plot, lines, points)


_POINT_COLUMNS: Final = (
    "x",
    "y",
    "low",
    "high",
    "colour",
    "alpha",
    "model",
    "step",
    "layer",
    "bar",
    "sample",
)


def _fit(plot: figure, x: Reals, y: Reals) -> None:
    """Let a figure show all of some points: the browser finds no ranges while data come in."""
    for shown, values in ((plot.x_range, x), (plot.y_range, y)):
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        margin = 0.05 * (high - low) or 0.1 * abs(high) or 1.0
        start, end = low - margin, high + margin
        shown.update(start=start, end=end, reset_start=start, reset_end=end)


def along_steps(step: int) -> float:
    """Return where a step is drawn: steps of checkpoints often double."""
    return log10(1 + step)


def _along(steps: npt.NDArray[np.int64]) -> Reals:
    places: Reals = np.log10(1.0 + steps)
    return places


def number_steps(plot: figure, steps: npt.NDArray[np.int64]) -> None:
    """Label the axis of a figure over training at steps there are, as many as have room."""
    places = _along(np.unique(steps))[::-1].tolist()
    gap = (places[0] - places[-1]) / MOST_STEP_TICKS if places else 0.0
    ticks: list[float] = []
    for place in places:
        if not ticks or ticks[-1] - place >= gap:
            ticks.append(place)
    plot.xaxis.ticker = FixedTicker(ticks=ticks)
    plot.xaxis.formatter = CustomJSTickFormatter(
        code="return Math.round(10 ** tick - 1).toLocaleString('en')"
    )


def fill_depth(chart: Chart, values: Values, steps: Sequence[int], colours: dict[str, str]) -> None:
    """Draw values over layers: a curve for each model and each of a few of the steps."""
    kept = values.where(np.isin(values.step, steps))
    _fill(chart, kept, kept.step, colours, kept.depth.astype(np.float64))


def fill_training(
    chart: Chart, values: Values, layers: Sequence[int], colours: dict[str, str]
) -> None:
    """Draw values over training: a curve for each model and each of a few of the layers."""
    kept = values.where(np.isin(values.depth, layers))
    _fill(chart, kept, kept.depth, colours, _along(kept.step))
    number_steps(chart.figure, kept.step)


def _curves(
    values: Values, labels: npt.NDArray[np.int64], x: Reals
) -> dict[tuple[str, float], npt.NDArray[np.intp]]:
    """Choose some steps or layers of each model, the last among them; the later the stronger.

    Args:
        values: The values.
        labels: What tells the curves of a model apart (value,).
        x: Where each value is drawn.

    Returns:
        The rows of each curve in their order, by the model and how strong it is drawn.
    """
    chosen: dict[tuple[str, float], npt.NDArray[np.intp]] = {}
    for model in dict.fromkeys(values.model.tolist()):
        own = np.flatnonzero(values.model == model)
        known = np.unique(labels[own])
        places = np.unique(np.linspace(0, len(known) - 1, min(MOST_CURVES, len(known))).round())
        for number, place in enumerate(places.astype(int).tolist()):
            rows = own[labels[own] == known[place]]
            alpha = 0.3 + 0.7 * (number + 1) / len(places)
            chosen[str(model), alpha] = rows[np.argsort(x[rows], kind="stable")]
    return chosen


def _fill(
    chart: Chart,
    values: Values,
    labels: npt.NDArray[np.int64],
    colours: dict[str, str],
    x: Reals,
) -> None:
    curves = _curves(values, labels, x)
    chart.figure.visible = bool(curves)
    if not curves:
        return
    rows = np.concatenate(list(curves.values()))
    lengths = [len(own) for own in curves.values()]
    value, low, high = (column[rows] for column in (values.value, values.low, values.high))
    known = np.isfinite(low) & np.isfinite(high)
    told = {one: tell_samples([one]) or "every row" for one in set(values.sample[rows].tolist())}
    # Arrays of numbers go to the browser as they are, lists value by value.
    points = {
        "x": x[rows],
        "y": value,
        "low": np.where(known, low, value),
        "high": np.where(known, high, value),
        "colour": [colours[model] for model in values.model[rows].tolist()],
        "alpha": np.repeat([alpha for _, alpha in curves], lengths),
        "model": values.model[rows].tolist(),
        "step": values.step[rows].astype(np.int32),
        "layer": values.depth[rows].astype(np.int32),
        "bar": [
            f"{one:.4g} to {other:.4g}" if both else "not known"
            for one, other, both in zip(low.tolist(), high.tolist(), known.tolist(), strict=True)
        ],
        "sample": [told[one] for one in values.sample[rows].tolist()],
    }
    _fit(chart.figure, points["x"], np.concatenate([value, points["low"], points["high"]]))
    chart.lines.data = {
        "xs": [x[own] for own in curves.values()],
        "ys": [values.value[own] for own in curves.values()],
        "colour": [colours[model] for model, _ in curves],
        "alpha": [alpha for _, alpha in curves],
    }
    chart.points.data = points


def token_chart(colour: str) -> tuple[figure, ColumnDataSource]:
    """Return an empty scatter of tokens; one can be chosen by a click."""
    plot = figure(
        name="tokens",
        visible=False,
        height=430,
        sizing_mode="stretch_width",
        min_width=280,
        tools="wheel_zoom,pan,reset",
        toolbar_location=None,
        x_range=Range1d(),
        y_range=Range1d(),
    )
    columns = ("x", "y", "word", "context", "place")
    source = ColumnDataSource(data={name: [] for name in columns})
    dots = plot.scatter(
        "x",
        "y",
        source=source,
        size=6,
        color=colour,
        alpha=0.55,
        selection_color="#d1495b",
        selection_alpha=1.0,
        nonselection_alpha=0.35,
    )
    tips = [("token", "@word"), ("in", "@context"), ("where", "@place")]
    hover = HoverTool(renderers=[dots], tooltips=tooltip(tips), show_arrow=False)
    plot.add_tools(hover, TapTool(renderers=[dots]))
    return plot, source


def fill_tokens(plot: figure, source: ColumnDataSource, plane: Plane, sample: TokenSample) -> None:
    """Draw a sample of tokens in a plane."""
    _fit(plot, plane.points[:, 0], plane.points[:, 1])
    source.data = {
        "x": plane.points[:, 0],
        "y": plane.points[:, 1],
        "word": list(sample.words),
        "context": list(sample.contexts),
        "place": [
            f"sequence {sequence}, position {position}"
            for sequence, position in zip(sample.sequence, sample.position, strict=True)
        ],
    }
