"""From labelled results to the curves of a figure, before anything is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import xarray as xr

from analysis.errors import InputError, UnknownMetricError, UnknownPopulationError
from analysis.metrics.metric import STDERR
from store.schema import LAYER, MODEL, POPULATION, STAGES, STEP

Abscissa: TypeAlias = Literal["relative_depth", "layer", "step"]
Hue: TypeAlias = Literal["model", "step", "population"]
Values: TypeAlias = npt.NDArray[np.float64]

RELATIVE_DEPTH: Abscissa = "relative_depth"


@dataclass(frozen=True)
class Curve:
    """One line of a figure.

    Attributes:
        label: What the line stands for.
        x: Where its points are, in rising order (point).
        y: Values (point).
        stderr: Standard error of each value, NaN where unknown (point).
        members: Curves whose mean this is, by layer; empty where it is no mean.
    """

    label: str
    x: Values
    y: Values
    stderr: Values
    members: dict[int, Values]


def curves(
    results: xr.Dataset, metric: str, *, x: Abscissa, hue: Hue, population: str | None = None
) -> list[Curve]:
    """Cut the results of one metric into curves.

    Over depth, each model is taken at its last step unless steps are the hue, and over relative
    depth its stages make one curve. Over steps, the
    curve is the mean over blocks, layer 0 (the embeddings) left out where there are others, and its
    standard error the mean of theirs: they read the same tokens, so that their errors do not
    average out.

    Args:
        results: Metrics (model, step, layer, population), any of which may be missing.
        metric: Name of a variable of one number a layer.
        x: What runs along the figure.
        hue: What tells the curves apart.
        population: Rows to show where they are not the hue; ``all`` by default, or the first.

    Raises:
        UnknownMetricError: If the results hold no such metric.
        UnknownPopulationError: If they hold no such population.
        InputError: If a curve would have to mix models, or nothing is left to draw.
    """
    if x == hue:
        raise InputError(f"{x!r} cannot both run along the figure and tell its curves apart")
    values, errors = _labelled(results, metric)
    if hue != POPULATION:
        chosen = shown_population(values, population)
        values, errors = (array.sel({POPULATION: [chosen]}) for array in (values, errors))
    if hue != MODEL and values.sizes[MODEL] > 1:
        raise InputError(
            f"curves told apart by {hue} can show one model, but the results hold "
            f"{', '.join(map(str, values[MODEL].values))}; select one first"
        )
    found = []
    for key in values[hue].values:
        value, error = (array.sel({hue: [key]}) for array in (values, errors))
        curve = _over_steps if x == STEP else _over_depth
        found += curve(str(key), value, error, x)
    if not found:
        raise InputError(_nothing(results[metric], metric, hue))
    return _stages_joined(found) if x == RELATIVE_DEPTH and hue == MODEL else found


def _nothing(values: xr.DataArray, metric: str, hue: Hue) -> str:
    """Say that there is nothing to draw, and of which rows there would be something."""
    told = f"there is nothing to draw: every value of {metric} is missing"
    if hue == POPULATION or POPULATION not in values.dims:
        return told
    others = populations_with(values)
    return f"{told} for these rows; there are some for {', '.join(others)}" if others else told


def populations_with(values: xr.DataArray) -> list[str]:
    """Return the populations for which there are values, ``all`` first."""
    known = values.notnull().any([dim for dim in values.dims if dim != POPULATION])
    names = [str(name) for name in values[POPULATION].values[known.values]]
    return sorted(names, key=lambda name: name != "all")


def _stages_joined(found: Sequence[Curve]) -> list[Curve]:
    """Join the curves of a model's stages, which follow each other in depth, to one of the model.

    Only neighbours are joined: stages come in their order.
    """
    joined: list[Curve] = []
    for curve in found:
        model, _, stack = curve.label.rpartition("/")
        if stack not in STAGES:
            joined.append(curve)
        elif joined and joined[-1].label == model:
            last = joined.pop()
            x_all, y_all, errors = (
                np.concatenate(pair)
                for pair in ((last.x, curve.x), (last.y, curve.y), (last.stderr, curve.stderr))
            )
            joined.append(Curve(model, x_all, y_all, errors, {}))
        else:
            joined.append(replace(curve, label=model))
    return joined


def shown_population(values: xr.DataArray | xr.Dataset, population: str | None) -> str:
    """Return the population to show: the one asked for, else ``all``, else the first there is.

    Raises:
        UnknownPopulationError: If the one asked for is not there.
    """
    known = [str(name) for name in values[POPULATION].values]
    if population is None:
        return "all" if "all" in known else known[0]
    if population not in known:
        raise UnknownPopulationError(population, known)
    return population


def _labelled(results: xr.Dataset, metric: str) -> tuple[xr.DataArray, xr.DataArray]:
    """Return values and standard errors (model, step, layer, population)."""
    if metric not in results.data_vars:
        raise UnknownMetricError(metric, map(str, results.data_vars))
    values = results[metric]
    defaults = {MODEL: "model", STEP: 0, LAYER: 0, POPULATION: "all"}
    extra = [str(name) for name in values.dims if name not in defaults]
    if extra:
        raise InputError(
            f"{metric} also depends on {', '.join(extra)}: select one first, as in "
            f"results.isel({extra[0]}=0)"
        )
    errors = results.get(metric + STDERR, xr.full_like(values, np.nan))
    completed = []
    for array in (values, errors):
        for dim, default in defaults.items():
            if dim not in array.dims:
                label = array.coords[dim].item() if dim in array.coords else default
                array = array.drop_vars(dim, errors="ignore").expand_dims({dim: [label]})
        completed.append(array.transpose(MODEL, STEP, LAYER, POPULATION))
    return completed[0], completed[1]


def _over_depth(label: str, values: xr.DataArray, errors: xr.DataArray, x: Abscissa) -> list[Curve]:
    table = values.values[0, :, :, 0]
    present = np.isfinite(table)
    steps = np.flatnonzero(present.any(axis=1))
    if len(steps) == 0:
        return []
    last = steps[-1]
    drawn = np.flatnonzero(present[last])
    depths = values[LAYER].values.astype(np.float64)
    if x == RELATIVE_DEPTH:
        depths = _relative_depth(values, depths, drawn)
    stderr = errors.values[0, last, drawn, 0]
    return [Curve(label, depths[drawn], table[last, drawn], stderr, {})]


def _relative_depth(values: xr.DataArray, layers: Values, drawn: npt.NDArray[np.intp]) -> Values:
    if RELATIVE_DEPTH in values.coords:
        depths = values.coords[RELATIVE_DEPTH].transpose(..., LAYER).values.astype(np.float64)
        own: Values = depths.reshape(-1, len(layers))[0]
        return own
    return layers / max(1.0, float(layers[drawn].max()))


def _over_steps(label: str, values: xr.DataArray, errors: xr.DataArray, x: Abscissa) -> list[Curve]:
    table = values.values[0, :, :, 0]
    present = np.isfinite(table)
    steps = np.flatnonzero(present.any(axis=1))
    layers = np.flatnonzero(present.any(axis=0))
    if len(steps) == 0:
        return []
    # The embeddings are no block: they have no more distinct rows than the vocabulary has tokens.
    blocks = layers[values[LAYER].values[layers] > 0]
    layers = blocks if len(blocks) else layers
    table = table[np.ix_(steps, layers)]
    deviations = errors.values[0, :, :, 0][np.ix_(steps, layers)]
    numbers = values[LAYER].values[layers]
    members = {int(number): table[:, i] for i, number in enumerate(numbers)}
    return [
        Curve(
            label,
            values[x].values[steps].astype(np.float64),
            np.nanmean(table, axis=1),
            _mean_where_known(deviations, np.isfinite(table)),
            members if len(members) > 1 else {},
        )
    ]


def _mean_where_known(deviations: Values, present: npt.NDArray[np.bool_]) -> Values:
    """Return the mean of each row (step), NaN where one of the values has no standard error."""
    mean: Values = np.where(present, deviations, 0.0).sum(axis=1) / present.sum(axis=1)
    return mean
