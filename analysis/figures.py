"""Figures of metrics over layers and over training, with their standard errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import xarray as xr

from analysis.curves import Abscissa, Curve, Hue, curves, populations_with, shown_population
from analysis.drawing import (
    draw_curve,
    label_axes,
    line_styles,
    new_figure,
    save_figure,
    wrapped_title,
)
from analysis.errors import InputError
from analysis.samples import tell_drawn_samples
from store.schema import MODEL, POPULATION, STEP

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES: Final = (".png", ".pdf", ".svg")
"""File formats of figures."""

_MOST_INSIDE: Final = 5
_MOST_WITH_MEMBERS: Final = 3
_TITLE_COLUMNS: Final = 80
_TITLE_COLUMNS_A_PANEL: Final = 66


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
        results: Metrics (model, step, layer, population), or (model, step, block, head,
            population).
        metric: Name of a metric of one number a layer or head.
        x: What runs along the figure; over steps, the mean over blocks is drawn, and thin lines
            for the layers; of heads the mean over heads, and thin lines for them over depth.
        hue: What tells the curves apart.
        population: Rows to show where they are not the hue; by default ``all``, or the first of
            which there are values.
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
        population: Rows to show where they are not the hue; by default ``all``, or the first of
            which there are values.
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
    population = population or _shared_population(results, metrics, hue)
    drawn = [curves(results, name, x=x, hue=hue, population=population) for name in metrics]
    figure = new_figure(len(metrics))
    panels = list(figure.subplots(1, len(metrics), squeeze=False)[0])
    styles = line_styles([curve.label for panel in drawn for curve in panel], ordered=hue == STEP)
    for axes, name, panel in zip(panels, metrics, drawn, strict=True):
        for curve in panel:
            draw_curve(axes, curve, styles[curve.label], members=len(panel) <= _MOST_WITH_MEMBERS)
        if len(panel) == 1:
            _number_members(axes, panel[0])
        label_axes(axes, results[name], x, panel)
    _add_legend(figure, panels, hue)
    sample = _tell_samples(results, metrics, x, hue, population)
    notes = _notes(results, drawn, x, hue, population, sample)
    _add_title(figure, panels, [title, *notes])
    if output is not None:
        save_figure(figure, output)
    return figure


def _shared_population(results: xr.Dataset, metrics: Sequence[str], hue: Hue) -> str | None:
    """Return the first population of which all metrics have values, None where none has."""
    tables = [results[name] for name in metrics if name in results]
    if hue == POPULATION or any(POPULATION not in table.dims for table in tables):
        return None
    known = [populations_with(table) for table in tables]
    first = known[0] if known else []
    return next((name for name in first if all(name in own for own in known)), None)


def _number_members(axes: Axes, curve: Curve) -> None:
    """Write the number of a layer or head at the end of its thin line, the outermost first."""
    ends = {number: float(member[-1]) for number, member in curve.members.items()}
    bottom, top = axes.get_ylim()
    placed: list[float] = []
    for number in sorted(ends, key=lambda number: min(number - min(ends), max(ends) - number)):
        if all(abs(ends[number] - other) > 0.04 * (top - bottom) for other in placed):
            placed.append(ends[number])
            axes.annotate(
                str(number),
                (curve.x[-1], ends[number]),
                xytext=(4, 0),
                textcoords="offset points",
                verticalalignment="center",
                fontsize="x-small",
            )


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
    sample: str,
) -> list[str]:
    """Say what the reader cannot see: rows, sample, step, what thin lines and bands are."""
    notes = []
    everything = [curve for panel in drawn for curve in panel]
    if hue == MODEL and len({curve.label for curve in everything}) == 1:
        notes.append(everything[0].label)
    if hue != POPULATION and POPULATION in results.dims:
        notes.append(f"rows: {shown_population(results, population)}")
    notes.append(sample)
    if STEP not in (x, hue) and results.sizes.get(STEP, 1) > 1:
        notes.append("last step")
    over = next((curve.mean_over for curve in everything if curve.members), ())
    if over:
        thin = any(len(panel) <= _MOST_WITH_MEMBERS for panel in drawn)
        each = "each" if len(over) == 1 else "each block"
        notes.append(f"mean over {' and '.join(over)}" + (f" (thin: {each})" if thin else ""))
    if any(np.isfinite(curve.stderr).any() for curve in everything):
        notes.append("band: ± standard error")
    return notes


def _tell_samples(
    results: xr.Dataset, metrics: Sequence[str], x: Abscissa, hue: Hue, population: str | None
) -> str:
    """Say which samples the values are of, by metric unless it is one for all of them."""
    told = {name: tell_drawn_samples(results, name, x, hue, population) for name in metrics}
    told = {name: sample for name, sample in told.items() if sample}
    if len(set(told.values())) == 1 and len(told) == len(metrics):
        return next(iter(told.values()))
    return "; ".join(f"{name}: {sample}" for name, sample in told.items())


def _add_title(figure: Figure, panels: Sequence[Axes], parts: Sequence[str]) -> None:
    if len(panels) == 1:
        panels[0].set_title(wrapped_title(parts, _TITLE_COLUMNS), fontsize="small", loc="left")
    else:
        width = len(panels) * _TITLE_COLUMNS_A_PANEL
        figure.suptitle(wrapped_title(parts, width), fontsize="medium")
