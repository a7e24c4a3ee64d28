"""Grids of panels: metrics beside each other, populations against each other, one against one."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from analysis.curves import Abscissa, Curve
from analysis.drawing import draw_curve, label_axes, line_styles, new_figure
from flows.studies.study import Measured, Study
from store.schema import MODEL, POPULATION

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS: Final = 3
_CHARACTERS_A_COLUMN: Final = 62
_MOST_WITH_MEMBERS: Final = 2
_CENTRED: Final = frozenset(
    {"svd_anisotropy", "participation_ratio", "effective_rank", "stable_rank"}
)
_UNCENTRED: Final = frozenset({"average_cosine", "svd_anisotropy_uncentred", "rankme"})


@dataclass(frozen=True)
class _Panel:
    metric: str
    x: Abscissa
    curves: list[Curve]
    heading: str = ""


def draw_metrics(
    study: Study,
    measured: Measured,
    metrics: Sequence[str],
    *,
    x: Abscissa,
    models: Sequence[str] | None = None,
) -> Figure:
    """Draw a panel for each metric, with a curve for each model.

    Args:
        study: Whose figure it is.
        measured: The results.
        metrics: Names of metrics.
        x: What runs along the panels: depth at the last step, or steps with the mean over blocks.
        models: Models to show, by default all.

    Raises:
        AnalysisError: If matplotlib is not installed.
    """
    shown = measured.models if models is None else models
    panels = []
    for metric in metrics:
        rows = measured.shown_population(metric, study.population)
        found = [measured.curve(model, metric, x, rows) for model in shown]
        drawn = [curve for curve in found if curve is not None]
        heading = "" if rows == study.population else f"rows: {rows}"
        panels.append(_Panel(metric, x, drawn, heading))
    notes = [f"rows: {study.population}", _rows(measured, study.population, shown)]
    return _draw_panels(study, measured, panels, notes, _COLUMNS)


def draw_controls(study: Study, measured: Measured, *, x: Abscissa) -> Figure:
    """Draw the grid of controls: a row for each model, a column a metric, a curve a population.

    Raises:
        AnalysisError: If matplotlib is not installed.
    """
    metrics = list(study.metrics[:_COLUMNS])
    populations = measured.populations
    panels = []
    for model in measured.runs if x == "step" else measured.models:
        for metric in metrics:
            found = [
                Curve(population, curve.x, curve.y, curve.stderr, {})
                for population in populations
                if (curve := measured.curve(model, metric, x, population)) is not None
            ]
            panels.append(_Panel(metric, x, found, f"{model} ({measured.kind(model)})"))
    notes = ["controls: choices of rows", *(f"{p}: {_rows(measured, p)}" for p in populations)]
    return _draw_panels(study, measured, panels, notes, len(metrics))


def draw_against(study: Study, measured: Measured, *, x: str, y: str) -> Figure:
    """Draw one metric against another, a point for each layer of each model.

    Raises:
        AnalysisError: If matplotlib is not installed.
    """
    figure = new_figure(1)
    axes = figure.subplots()
    styles = line_styles(measured.models, ordered=False)
    for model in measured.models:
        style = styles[model]
        across = measured.curve(model, x, "layer", study.population)
        up = measured.curve(model, y, "layer", study.population)
        if across is None or up is None:
            continue
        axes.errorbar(
            across.y,
            up.y,
            xerr=across.stderr,
            yerr=up.stderr,
            label=model,
            color=style.colour,
            marker=style.marker,
            markersize=5,
            linestyle="none",
            elinewidth=0.8,
        )
    axes.set_xlabel(_long_name(measured, x))
    axes.set_ylabel(_long_name(measured, y))
    axes.grid(visible=True, linewidth=0.4, alpha=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")
    notes = [
        f"rows: {study.population}",
        _rows(measured, study.population),
        "one point a layer, last step",
        "bars: ± standard error",
    ]
    _add_title(figure, [study.title, *notes], 1)
    return figure


def _draw_panels(
    study: Study,
    measured: Measured,
    panels: Sequence[_Panel],
    notes: Sequence[str],
    columns: int,
) -> Figure:
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(columns, rows)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    labels = [curve.label for panel in panels for curve in panel.curves]
    styles = line_styles(labels, ordered=False)
    for axes, panel in zip(grid, panels, strict=False):
        few = len(panel.curves) <= _MOST_WITH_MEMBERS
        for curve in panel.curves:
            draw_curve(axes, curve, styles[curve.label], members=few)
        if panel.curves:
            label_axes(axes, measured.results[panel.metric], panel.x, panel.curves)
        axes.set_ylabel(textwrap.fill(_long_name(measured, panel.metric), 40))
        axes.set_title(panel.heading, fontsize="small", loc="left")
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    _add_legend(figure, list(grid))
    _add_title(figure, [study.title, measured.corpus, *notes, *_means_and_bands(panels)], columns)
    return figure


def _means_and_bands(panels: Sequence[_Panel]) -> list[str]:
    notes = []
    everything = [curve for panel in panels for curve in panel.curves]
    if any(curve.members for curve in everything):
        thin = any(len(panel.curves) <= _MOST_WITH_MEMBERS for panel in panels)
        notes.append("mean over blocks" + (" (thin: each block)" if thin else ""))
    elif panels[0].x != "step":
        notes.append("last step")
    if any(np.isfinite(curve.stderr).any() for curve in everything):
        notes.append("band: ± standard error")
    return notes


def _rows(measured: Measured, population: str, models: Sequence[str] | None = None) -> str:
    """Say how many rows a layer has, from the fewest to the most."""
    shown = measured.models if models is None else list(models)
    n = measured.results["n"].sel({POPULATION: population, MODEL: shown})
    least, most = int(n.min()), int(n.max())
    return f"n = {least:,}" if least == most else f"n = {least:,} to {most:,}"


def _long_name(measured: Measured, metric: str) -> str:
    attrs = measured.results[metric].attrs
    name = str(attrs.get("long_name", metric.replace("_", " ")))
    if attrs.get("units", "1") not in ("", "1"):
        name += f" [{attrs['units']}]"
    if metric in _CENTRED:
        return f"{name} (centred)"
    return f"{name} (not centred)" if metric in _UNCENTRED and "centred" not in name else name


def _add_legend(figure: Figure, panels: Sequence[Axes]) -> None:
    entries: dict[str, Artist] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(
        list(entries.values()), list(entries), loc="outside lower center", ncols=4, fontsize="small"
    )


def _add_title(figure: Figure, parts: Sequence[str], columns: int) -> None:
    text = " · ".join(filter(None, parts))
    figure.suptitle(textwrap.fill(text, _CHARACTERS_A_COLUMN * columns), fontsize="medium")
