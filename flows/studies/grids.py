"""Metrics beside each other, populations against each other, one metric against another."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from analysis.curves import Abscissa, Curve, Values
from analysis.drawing import line_styles, new_figure
from flows.studies.panels import COLUMNS, Panel, add_legend, add_title, draw_panels, tidy
from flows.studies.study import Measured, Study
from store.schema import MODEL, POPULATION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CENTRED: Final = frozenset(
    {"svd_anisotropy", "participation_ratio", "effective_rank", "stable_rank"}
)
_UNCENTRED: Final = frozenset({"average_cosine", "svd_anisotropy_uncentred", "rankme"})


def draw_metrics(
    study: Study,
    measured: Measured,
    metrics: Sequence[str],
    *,
    x: Abscissa,
    models: Sequence[str] | None = None,
    beside: Sequence[str] = (),
) -> Figure:
    """Draw a panel for each metric, with a curve for each model.

    Args:
        study: Whose figure it is.
        measured: The results.
        metrics: Names of metrics.
        x: What runs along the panels: depth at the last step, or steps with the mean over blocks.
        models: Models to show, by default all.
        beside: Other rows to show below those of the study, as far as they were measured.

    Raises:
        AnalysisError: If matplotlib is not installed.
    """
    shown = measured.models if models is None else models
    panels = []
    populations = [study.population, *(name for name in beside if name in measured.populations)]
    for population, metric in itertools.product(populations, metrics):
        rows = measured.shown_population(metric, population)
        found = [measured.curve(model, metric, x, rows) for model in shown]
        drawn = _stages_joined([curve for curve in found if curve is not None])
        heading = "" if rows == study.population and not beside else f"rows: {rows}"
        panels.append(Panel(long_name(measured, metric), x, drawn, heading))
    notes = [
        part for name in populations for part in (f"rows: {name}", rows_note(measured, name, shown))
    ]
    corpora = ", ".join(dict.fromkeys(measured.corpora[model] for model in shown))
    title = [study.title, corpora, *notes, *_seeds(measured, shown)]
    return draw_panels(title, panels, 2 if len(panels) == 4 else min(COLUMNS, len(metrics)))


def draw_against(study: Study, measured: Measured, x: str, y: str, models: Sequence[str]) -> Figure:
    """Draw one metric against another, a point for each layer of each of some models.

    Raises:
        AnalysisError: If matplotlib is not installed.
    """
    figure = new_figure(1)
    axes = figure.subplots()
    across, up = (depth_curves(study, measured, metric, models) for metric in (x, y))
    styles = line_styles([curve.label for curve in across], ordered=False)
    for rightward, upward in zip(across, up, strict=True):
        style = styles[rightward.label]
        axes.errorbar(
            rightward.y,
            upward.y,
            xerr=rightward.stderr,
            yerr=upward.stderr,
            label=rightward.label,
            color=style.colour,
            marker=style.marker,
            markersize=5,
            linestyle="none",
            elinewidth=0.8,
        )
    space_norms(axes, [curve.y for curve in across])
    axes.set_xlabel(long_name(measured, x))
    axes.set_ylabel(textwrap.fill(long_name(measured, y), 32))
    tidy(axes)
    add_legend(figure, [axes], 1)
    notes = [
        ", ".join(dict.fromkeys(measured.corpora[model] for model in models)),
        f"rows: {study.population}",
        rows_note(measured, study.population, models),
        "one point a layer, last step",
        "bars: ± standard error",
    ]
    add_title(figure, [study.title, *notes], 1)
    return figure


def space_norms(axes: Axes, norms: Sequence[Values]) -> None:
    """Space norms along x by their logarithm where they are of different orders.

    Within one order a logarithmic axis has no tick but fractions of a power of ten.
    """
    found = np.concatenate(norms)
    found = found[np.isfinite(found)]
    if found.size and found.min() > 0 and found.max() >= 10 * found.min():
        axes.set_xscale("log")


def depth_curves(
    study: Study, measured: Measured, metric: str, models: Sequence[str]
) -> list[Curve]:
    """Return a metric over the depth of each of some models that have it, whole models in one."""
    found = [measured.curve(model, metric, "relative_depth", study.population) for model in models]
    return _stages_joined([curve for curve in found if curve is not None])


def _stages_joined(curves: Sequence[Curve]) -> list[Curve]:
    """Join what follows each other in depth: the stages of a model, whose curves have its name."""
    joined: list[Curve] = []
    for curve in curves:
        if joined and joined[-1].label == curve.label:
            last = joined.pop()
            pairs = ((last.x, curve.x), (last.y, curve.y), (last.stderr, curve.stderr))
            x, y, stderr = (np.concatenate(pair) for pair in pairs)
            joined.append(Curve(curve.label, x, y, stderr, {}))
        else:
            joined.append(curve)
    return joined


def long_name(measured: Measured, metric: str) -> str:
    """Return what a metric is called in a figure, with its unit, and centred or not."""
    attrs = measured.means[metric].attrs
    name = str(attrs.get("long_name", metric.replace("_", " ")))
    if attrs.get("units", "1") not in ("", "1"):
        name += f" [{attrs['units']}]"
    if metric in _CENTRED:
        return f"{name} (centred)"
    return f"{name} (not centred)" if metric in _UNCENTRED and "centred" not in name else name


def rows_note(measured: Measured, population: str, models: Sequence[str] | None = None) -> str:
    """Say how many rows a layer has, from the fewest to the most."""
    shown = measured.models if models is None else list(models)
    n = measured.means["n"].sel({POPULATION: population, MODEL: shown})
    least, most = int(n.min()), int(n.max())
    return f"n = {least:,}" if least == most else f"n = {least:,} to {most:,}"


def _seeds(measured: Measured, models: Sequence[str]) -> list[str]:
    several = [f"{name}: {measured.seeds(name)}" for name in models if measured.seeds(name) > 1]
    return [f"mean over seeds, their standard error ({', '.join(several)})"] if several else []
