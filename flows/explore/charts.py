"""The figures of the explorer, and what fills them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite, log10
from typing import Final

import numpy as np
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
    plot.add_tools(HoverTool(renderers=[dots], tooltips=tips))
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


def _fit(plot: figure, x: Iterable[float], y: Iterable[float]) -> None:
    """Let a figure show all of some points: the browser finds no ranges while data come in."""
    for shown, values in ((plot.x_range, tuple(x)), (plot.y_range, tuple(y))):
        low, high = min(values), max(values)
        margin = 0.05 * (high - low) or 0.1 * abs(high) or 1.0
        start, end = low - margin, high + margin
        shown.update(start=start, end=end, reset_start=start, reset_end=end)


def along_steps(step: int) -> float:
    """Return where a step is drawn: steps of checkpoints often double."""
    return log10(1 + step)


def number_steps(plot: figure, steps: Sequence[int]) -> None:
    """Label the axis of a figure over training at steps there are, as many as have room."""
    places = sorted({along_steps(step) for step in set(steps)}, reverse=True)
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
    curves: dict[tuple[str, int], list[int]] = {}
    for row, (model, step) in enumerate(zip(values.model, values.step, strict=True)):
        if step in steps:
            curves.setdefault((model, step), []).append(row)
    shown = _few(curves)
    _fill(chart, values, {key: curves[key] for key in shown}, shown, colours, values.depth)


def fill_training(
    chart: Chart, values: Values, layers: Sequence[int], colours: dict[str, str]
) -> None:
    """Draw values over training: a curve for each model and each of a few of the layers."""
    curves: dict[tuple[str, int], list[int]] = {}
    for row, (model, layer) in enumerate(zip(values.model, values.depth, strict=True)):
        if layer in layers:
            curves.setdefault((model, layer), []).append(row)
    shown = _few(curves)
    x = [along_steps(step) for step in values.step]
    _fill(chart, values, {key: curves[key] for key in shown}, shown, colours, x)
    number_steps(chart.figure, values.step)


def _few(curves: dict[tuple[str, int], list[int]]) -> dict[tuple[str, int], float]:
    """Choose some steps or layers of each model, the last among them; the later the stronger."""
    shown = {}
    for model in dict.fromkeys(name for name, _ in curves):
        labels = sorted(label for name, label in curves if name == model)
        places = np.unique(np.linspace(0, len(labels) - 1, min(MOST_CURVES, len(labels))).round())
        for number, place in enumerate(places):
            shown[model, labels[int(place)]] = 0.3 + 0.7 * (number + 1) / len(places)
    return shown


def _fill(
    chart: Chart,
    values: Values,
    curves: dict[tuple[str, int], list[int]],
    alphas: dict[tuple[str, int], float],
    colours: dict[str, str],
    x: Sequence[float],
) -> None:
    if not curves:
        chart.figure.visible = False
        return
    lines: dict[str, list[object]] = {key: [] for key in ("xs", "ys", "colour", "alpha")}
    points: dict[str, list[object]] = {key: [] for key in _POINT_COLUMNS}
    for key, rows in curves.items():
        ordered = sorted(rows, key=lambda row: x[row])
        lines["xs"].append([x[row] for row in ordered])
        lines["ys"].append([values.value[row] for row in ordered])
        lines["colour"].append(colours[key[0]])
        lines["alpha"].append(alphas[key])
        for row in ordered:
            low, high, value = values.low[row], values.high[row], values.value[row]
            known = isfinite(low) and isfinite(high)
            cells = (
                x[row],
                value,
                low if known else value,
                high if known else value,
                colours[key[0]],
                alphas[key],
                values.model[row],
                values.step[row],
                values.depth[row],
                f"{low:.4g} to {high:.4g}" if known else "not known",
                tell_samples([values.sample[row]]) or "every row",
            )
            for column, cell in zip(_POINT_COLUMNS, cells, strict=True):
                points[column].append(cell)
    drawn = [row for rows in curves.values() for row in rows]
    bars = (values.value, values.low, values.high)
    ends = (column[row] for column in bars for row in drawn)
    _fit(chart.figure, (x[row] for row in drawn), filter(isfinite, ends))
    chart.lines.data = lines
    chart.points.data = points
    chart.figure.visible = True


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
    plot.add_tools(HoverTool(renderers=[dots], tooltips=tips), TapTool(renderers=[dots]))
    return plot, source


def fill_tokens(plot: figure, source: ColumnDataSource, plane: Plane, sample: TokenSample) -> None:
    """Draw a sample of tokens in a plane."""
    _fit(plot, plane.points[:, 0].tolist(), plane.points[:, 1].tolist())
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
