"""The grid of controls: which rows, centred or not, within or across sequences, how many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from analysis.curves import Abscissa, Curve
from flows.studies.grids import long_name, rows_note
from flows.studies.panels import COLUMNS, Panel, draw_panels
from flows.studies.sentences import tell_populations
from flows.studies.shape import WORDS, shape_of
from flows.studies.study import Measured, Study
from store.schema import STEP

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONTROL_METRICS: Final = (
    *("svd_anisotropy", "svd_anisotropy_uncentred"),
    *("average_cosine", "average_cosine_within", "average_cosine_across"),
)
"""What the grid shows of each model, besides the first metrics of the study."""

_COMPARED: Final = (
    ("svd_anisotropy", "svd_anisotropy_uncentred", "centred", "not centred"),
    (
        "average_cosine_within",
        "average_cosine_across",
        "within sequences",
        "across sequences",
    ),
)


def draw_controls(study: Study, measured: Measured) -> Figure:
    """Draw a row of panels for each model, a column for each metric, a curve for each population.

    Raises:
        AnalysisError: If matplotlib is not installed.
    """
    x = abscissa(study, measured)
    metrics = _metrics(study, measured)
    panels = []
    for model in _models(measured, x):
        for metric in metrics:
            found = [
                Curve(population, curve.x, curve.y, curve.stderr, {})
                for population in measured.populations
                if (curve := measured.curve(model, metric, x, population)) is not None
            ]
            heading = f"{model} ({measured.kind(model)})"
            panels.append(Panel(long_name(measured, metric), x, found, heading))
    rows = [f"{name}: {rows_note(measured, name)}" for name in measured.populations]
    where = "mean over blocks" if x == STEP else ""
    title = [study.title, measured.corpus, "controls: choices of rows", where, *rows]
    return draw_panels(title, panels, len(metrics))


def tell_controls(study: Study, measured: Measured) -> list[str]:
    """Say where another choice of rows, of centring or of pairs would say otherwise."""
    x = abscissa(study, measured)
    told = []
    for model in _models(measured, x):
        told += [
            tell_populations(study, measured, model, metric, x)
            for metric in _metrics(study, measured)
        ]
        told += [
            _compare(measured, model, x, study.population, *pair)
            for pair in _COMPARED
            if all(name in measured.means for name in pair[:2])
        ]
    return told


def abscissa(study: Study, measured: Measured) -> Abscissa:
    """Return what runs along the figures of a study: steps where it is about training alone."""
    return STEP if study.needs == {"trajectory"} and measured.runs else "relative_depth"


def _models(measured: Measured, x: Abscissa) -> Sequence[str]:
    return measured.runs if x == STEP else measured.models


def _metrics(study: Study, measured: Measured) -> list[str]:
    wanted = dict.fromkeys((*study.metrics[:COLUMNS], *study.control_metrics))
    return [metric for metric in wanted if metric in measured.means]


def _compare(
    measured: Measured,
    model: str,
    x: Abscissa,
    population: str,
    one: str,
    other: str,
    name: str,
    other_name: str,
) -> str:
    """Say by how much two forms of a metric differ at most, and whether their shapes do."""
    curves = [measured.curve(model, metric, x, population) for metric in (one, other)]
    if curves[0] is None or curves[1] is None:
        return f"{model}: {one} or {other} has no value for the rows {population}."
    gap = curves[1].y - curves[0].y
    place = int(np.nanargmax(np.abs(gap)))
    kinds = [shape_of(curve).kind for curve in curves if curve is not None]
    shapes = (
        f"both are {WORDS[kinds[0]]}"
        if kinds[0] == kinds[1]
        else f"**the conclusion flips**: {WORDS[kinds[0]]} {name}, {WORDS[kinds[1]]} {other_name}"
    )
    return (
        f"{model}, rows {population}, {name} against {other_name}: they differ most at"
        f" {x.replace('_', ' ')} {curves[0].x[place]:.3g}, {curves[0].y[place]:.3g} against"
        f" {curves[1].y[place]:.3g}; {shapes}."
    )
