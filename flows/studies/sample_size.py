"""The control of n: what estimators of dimension give for fewer rows of the same layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from analysis.curves import Curve
from analysis.inputs import CAUSAL
from analysis.metrics import METRICS
from analysis.metrics.metric import STDERR
from analysis.neighborhoods import sample_tokens
from analysis.populations import TokenTable
from analysis.subsamples import decimate
from flows.studies.grids import long_name
from flows.studies.panels import Panel, Sweep, draw_panels
from flows.studies.study import Measured, Study
from store.repository import Repository
from store.slab import slabs, token_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FACTORS: Final = (8, 4, 2, 1)


def by_sample_size(study: Study, measured: Measured, sample: int) -> dict[str, list[Curve]]:
    """Estimate the dimension of the middle block of each model from n rows, n/2, n/4 and n/8.

    Args:
        study: The study; its metrics of neighbours are evaluated.
        measured: Its results.
        sample: Most rows.

    Returns:
        For each metric a curve over the number of rows for each model at its last step; nothing
        for a study without metrics of neighbours.

    Raises:
        StoreError: If activations are missing or damaged.
    """
    metrics = [METRICS[name] for name in study.metrics]
    chosen = [metric for metric in metrics if metric.needs == "neighbors" and not metric.dims]
    found: dict[str, list[Curve]] = {metric.name: [] for metric in chosen}
    for model in measured.models if chosen else ():
        rows = _rows(measured, model, sample)
        levels = decimate(rows, chosen, factors=_FACTORS)
        for metric in chosen:
            values, errors = levels[metric.name].values, levels[metric.name + STDERR].values
            found[metric.name].append(Curve(model, levels["n"].values, values, errors, {}))
    return found


def draw_sample_size(study: Study, measured: Measured, curves: dict[str, list[Curve]]) -> Figure:
    """Draw what each estimator gives for each number of rows.

    Raises:
        AnalysisError: If matplotlib is not installed.
    """
    most = max((curve for drawn in curves.values() for curve in drawn), key=lambda c: c.x[-1])
    x = Sweep("rows n among which neighbours are sought", tuple(np.round(most.x)))
    panels = [Panel(long_name(measured, name), x, drawn) for name, drawn in curves.items()]
    title = [
        study.title,
        measured.corpus,
        "controls: number of rows",
        "the middle block, last step",
    ]
    return draw_panels(title, panels)


def tell_sample_size(curves: dict[str, list[Curve]]) -> list[str]:
    """Say how much of each estimate is owed to the number of rows."""
    return [
        f"{curve.label}, middle block at the last step: {name} is {curve.y[0]:.3g} for"
        f" {curve.x[0]:.0f} rows and {curve.y[-1]:.3g} for {curve.x[-1]:.0f},"
        f" {curve.y[-1] / curve.y[0]:.2f} times as much."
        for name, drawn in curves.items()
        for curve in drawn
    ]


def _rows(measured: Measured, model: str, sample: int) -> np.ndarray:
    """Return sampled rows of content of the middle block at the last step (row, dim)."""
    run = measured.members[model][0]
    path, step = measured.paths[run], measured.steps(model)[-1]
    table = token_table(measured.store, path, measured.snapshot)
    described = TokenTable.from_coordinates(
        special=table["special"].values,
        position=table["position"].values,
        sequence=table["sequence"].values,
        causal=bool(table.attrs.get(CAUSAL, True)),
    )
    layers = measured.of(model)["layer"].values
    (slab,) = slabs(
        Repository.open(measured.store, read_only=True),
        path,
        steps=[step],
        layers=[int(layers[len(layers) // 2])],
        snapshot=measured.snapshot,
    )
    return slab.rows(sample_tokens(described, sample, 0, content=True))
