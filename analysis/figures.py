"""Figures of metrics over layers and over training, with their standard errors.

Colours are told apart by readers with any colour vision; line styles and markers differ as
well, so that a figure survives printing in black and white. Nothing global is changed: figures are
made without pyplot, and matplotlib is imported only when one is drawn.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import xarray as xr

from analysis.curves import Abscissa, Curve, Hue, Values, curves, shown_population
from analysis.errors import AnalysisError, InputError
from store.schema import LAYER, MODEL, POPULATION, STEP

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES: Final = (".png", ".pdf", ".svg")
"""File formats of figures."""

# Okabe and Ito's palette (2008), without its yellow, which is lost on white paper.
_PALETTE: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_LINE_STYLES: Final = ("-", "--", "-.", ":")
_MARKERS: Final = "os^Dvp"
_MOST_INSIDE: Final = 5
_MOST_WITH_MEMBERS: Final = 3
_MOST_STEP_TICKS: Final = 12
_MOST_LARGE_TICKS: Final = 8
_TITLE_COLUMNS: Final = 68
_ABSCISSAE: Final[dict[Abscissa, str]] = {
    "relative_depth": "relative depth (layer / number of blocks)",
    "layer": "layer (0: embeddings)",
    "step": "training step",
}


def plot_metric(
    results: xr.Dataset,
    metric: str,
    *,
    x: Abscissa = "relative_depth",
    hue: Hue = "model",
    population: str | None = None,
    output: Path | None = None,
) -> Figure:
    """Draw one metric, a curve for each model, step or population.

    Args:
        results: Metrics (model, step, layer, population).
        metric: Name of a metric of one number a layer.
        x: What runs along the figure; over steps, the mean over layers is drawn, and thin lines
            for the layers.
        hue: What tells the curves apart.
        population: Rows to show where they are not the hue; ``all`` by default.
        output: File to write, a picture or a page by its suffix.

    Returns:
        The figure, which shows itself in a notebook.

    Raises:
        UnknownMetricError: If the results hold no such metric.
        UnknownPopulationError: If they hold no such population.
        InputError: If a curve would mix models, or the suffix of the file is unknown.
        AnalysisError: If matplotlib is not installed.
    """
    return plot_metrics(results, [metric], x=x, hue=hue, population=population, output=output)


def plot_metrics(
    results: xr.Dataset,
    metrics: Sequence[str],
    *,
    x: Abscissa = "relative_depth",
    hue: Hue = "model",
    population: str | None = None,
    title: str = "",
    output: Path | None = None,
) -> Figure:
    """Draw several metrics side by side, as `plot_metric` draws one, with one legend.

    Args:
        results: Metrics (model, step, layer, population).
        metrics: Names of metrics, one panel each.
        x: What runs along the panels.
        hue: What tells the curves apart.
        population: Rows to show where they are not the hue; ``all`` by default.
        title: Line above the panels.
        output: File to write, a picture or a page by its suffix.

    Raises:
        UnknownMetricError: If the results hold no such metric.
        UnknownPopulationError: If they hold no such population.
        InputError: If a curve would mix models, or the suffix of the file is unknown.
        AnalysisError: If matplotlib is not installed.
    """
    if output is not None and output.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"cannot write a figure to {output}: its suffix must be one of {', '.join(SUFFIXES)}"
        )
    drawn = [curves(results, name, x=x, hue=hue, population=population) for name in metrics]
    figure = _new_figure(len(metrics))
    panels = list(figure.subplots(1, len(metrics), squeeze=False)[0])
    styles = _styles([curve.label for panel in drawn for curve in panel], ordered=hue == STEP)
    for axes, name, panel in zip(panels, metrics, drawn, strict=True):
        for curve in panel:
            _draw(axes, curve, styles[curve.label], members=len(panel) <= _MOST_WITH_MEMBERS)
        if len(panel) == 1:
            _number_layers(axes, panel[0])
        _label(axes, results[name], x, panel)
    _add_legend(figure, panels, hue)
    _add_title(figure, panels, [title, *_notes(results, drawn, x, hue, population)])
    if output is not None:
        _save(figure, output)
    return figure


@dataclass(frozen=True)
class _Style:
    colour: str
    line: str
    marker: str


def _new_figure(panels: int) -> Figure:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise AnalysisError(
            "figures need matplotlib, which is not installed: pip install 'actlas[plots]'"
        ) from error
    figure = Figure(figsize=(1.4 + 4.6 * panels, 4.2), layout="constrained", dpi=150)
    FigureCanvasAgg(figure)
    return figure


def _styles(labels: Sequence[str], *, ordered: bool) -> dict[str, _Style]:
    """Give every label its colour, line style and marker; ordered ones from light to dark."""
    distinct = list(dict.fromkeys(labels))
    colours = _shades(len(distinct)) if ordered else _PALETTE
    return {
        label: _Style(
            colours[i % len(colours)],
            _LINE_STYLES[i % len(_LINE_STYLES)],
            _MARKERS[i % len(_MARKERS)],
        )
        for i, label in enumerate(distinct)
    }


def _shades(count: int) -> Sequence[str]:
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    places = np.linspace(0.2, 1.0, count) if count > 1 else [1.0]
    return [to_hex(colormaps["cividis_r"](place)) for place in places]


def _draw(axes: Axes, curve: Curve, style: _Style, *, members: bool) -> None:
    for member in curve.members.values() if members else ():
        axes.plot(curve.x, member, color=style.colour, linewidth=0.7, alpha=0.4, zorder=1)
    low, high = curve.y - curve.stderr, curve.y + curve.stderr
    axes.fill_between(curve.x, low, high, color=style.colour, alpha=0.22, linewidth=0, zorder=2)
    axes.plot(
        curve.x,
        curve.y,
        label=curve.label,
        color=style.colour,
        linestyle=style.line,
        marker=style.marker,
        markersize=4,
        linewidth=1.6,
        zorder=3,
    )


def _number_layers(axes: Axes, curve: Curve) -> None:
    """Write the layer's number at the end of its thin line, the outermost first, where it fits."""
    ends = {layer: float(member[-1]) for layer, member in curve.members.items()}
    bottom, top = axes.get_ylim()
    placed: list[float] = []
    for layer in sorted(ends, key=lambda layer: min(layer - min(ends), max(ends) - layer)):
        if all(abs(ends[layer] - other) > 0.04 * (top - bottom) for other in placed):
            placed.append(ends[layer])
            axes.annotate(
                str(layer),
                (curve.x[-1], ends[layer]),
                xytext=(4, 0),
                textcoords="offset points",
                verticalalignment="center",
                fontsize="x-small",
            )


def _label(axes: Axes, values: xr.DataArray, x: Abscissa, drawn: Sequence[Curve]) -> None:
    units = values.attrs.get("units", "")
    name = str(values.attrs.get("long_name", str(values.name).replace("_", " ")))
    axes.set_ylabel(name if units in ("", "1") else f"{name} [{units}]")
    axes.set_xlabel(_ABSCISSAE[x])
    axes.grid(visible=True, linewidth=0.4, alpha=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    if x == STEP:
        _set_step_axis(axes, np.unique(np.concatenate([curve.x for curve in drawn])))
    elif x == LAYER:
        axes.locator_params(axis="x", integer=True)


def _set_step_axis(axes: Axes, steps: Values) -> None:
    """Space steps by their logarithm where they were chosen so, with step 0 shown."""
    positive = steps[steps > 0]
    if len(positive) == 0 or positive[-1] <= 4 * np.median(positive):
        return
    if steps[0] > 0:
        axes.set_xscale("log")
        axes.set_xlim(steps[0] / 1.2, steps[-1] * 1.2)
    else:
        axes.set_xscale("symlog", linthresh=positive[0], linscale=0.5)
        axes.set_xlim(-0.08 * positive[0], steps[-1] * 1.2)
    if len(steps) > _MOST_STEP_TICKS:
        every = -(-len(positive) // (_MOST_STEP_TICKS - 1))
        steps = np.concatenate([steps[steps <= 0], positive[::-1][::every][::-1]])
    size = "small" if len(steps) > _MOST_LARGE_TICKS else "medium"
    axes.set_xticks(steps, [f"{step:.0f}" for step in steps], fontsize=size)
    axes.minorticks_off()


def _add_legend(figure: Figure, panels: Sequence[Axes], hue: Hue) -> None:
    """Put one legend where it hides nothing: in a lone panel if short, else outside."""
    entries: dict[str, Artist] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if len(entries) == 1 and hue == MODEL:
        return
    handles, labels = list(entries.values()), list(entries)
    if len(panels) == 1 and len(entries) <= _MOST_INSIDE:
        panels[0].legend(handles, labels, title=hue, frameon=False, fontsize="small")
    elif len(panels) == 1:
        figure.legend(handles, labels, title=hue, loc="outside right upper", fontsize="small")
    else:
        figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize="small")


def _notes(
    results: xr.Dataset,
    drawn: Sequence[Sequence[Curve]],
    x: Abscissa,
    hue: Hue,
    population: str | None,
) -> list[str]:
    """Say what the reader cannot see: rows, step, what thin lines and bands are."""
    notes = []
    everything = [curve for panel in drawn for curve in panel]
    if hue == MODEL and len({curve.label for curve in everything}) == 1:
        notes.append(everything[0].label)
    if hue != POPULATION and POPULATION in results.dims:
        notes.append(f"rows: {shown_population(results, population)}")
    if STEP not in (x, hue) and results.sizes.get(STEP, 1) > 1:
        notes.append("last step")
    if any(curve.members for curve in everything):
        thin = any(len(panel) <= _MOST_WITH_MEMBERS for panel in drawn)
        notes.append("mean over layers" + (" (thin: each layer)" if thin else ""))
    if any(np.isfinite(curve.stderr).any() for curve in everything):
        notes.append("band: ± standard error")
    return notes


def _add_title(figure: Figure, panels: Sequence[Axes], parts: Sequence[str]) -> None:
    text = " · ".join(filter(None, parts))
    if len(panels) == 1:
        panels[0].set_title(textwrap.fill(text, _TITLE_COLUMNS), fontsize="small", loc="left")
    else:
        figure.suptitle(text, fontsize="medium")


def _save(figure: Figure, output: Path) -> None:
    """Write the file, the same bytes each time."""
    from matplotlib import rc_context

    output.parent.mkdir(parents=True, exist_ok=True)
    undated = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    with rc_context({"svg.hashsalt": "actlas"}):
        figure.savefig(output, metadata=undated.get(output.suffix.lower()))
