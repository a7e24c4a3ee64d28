"""From labelled results to the curves of a figure, before anything is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import xarray as xr

from analysis.curve_values import RELATIVE_DEPTH, labelled
from analysis.errors import InputError, UnknownPopulationError
from store.schema import HEAD, LAYER, MODEL, POPULATION, STAGES, STEP

Abscissa: TypeAlias = Literal["relative_depth", "layer", "step"]
Hue: TypeAlias = Literal["model", "step", "population"]
Values: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """One line of a figure.

    Attributes:
        label: What the line stands for.
        x: Where its points are, in rising order (point).
        y: Values (point).
        stderr: Standard error of each value, NaN where unknown (point).
        members: Curves whose mean this is, by layer or by head; empty where it is no mean.
        mean_over: What it is the mean over, ``blocks`` or ``heads`` or both; members are the first.
    """

    label: str
    x: Values
    y: Values
    stderr: Values
    members: dict[int, Values]
    mean_over: tuple[str, ...] = ()


def curves(
    results: xr.Dataset, metric: str, *, x: Abscissa, hue: Hue, population: str | None = None
) -> list[Curve]:
    """Cut the results of one metric into curves.

    Over depth, each model is taken at its last step unless steps are the hue, and over relative
    depth its stages make one curve. Over steps, the
    curve is the mean over blocks, layer 0 (the embeddings) left out where there are others, and
    that of heads the mean over heads. Its
    standard error is the mean of theirs: they read the same tokens, so that their errors do not
    average out.

    Args:
        results: Metrics (model, step, layer, population), any of which may be missing, or of the
            heads of each block (model, step, block, head, population).
        metric: Name of a variable of one number a layer, or a head.
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
    values, errors = labelled(results, metric)
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
            joined.append(replace(last, x=x_all, y=y_all, stderr=errors, members={}))
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


def _over_depth(label: str, values: xr.DataArray, errors: xr.DataArray, x: Abscissa) -> list[Curve]:
    heads = values.values[0, :, :, 0]
    present = np.isfinite(heads).any(axis=-1)
    steps = np.flatnonzero(present.any(axis=1))
    if len(steps) == 0:
        return []
    last = steps[-1]
    drawn = np.flatnonzero(present[last])
    depths = values[LAYER].values.astype(np.float64)
    if x == RELATIVE_DEPTH:
        depths = _relative_depth(values, depths, drawn)
    shown = heads[last, drawn]
    stderr = _mean_where_known(errors.values[0, last, drawn, 0], np.isfinite(shown))
    members = _of_heads(values, shown)
    over = ("heads",) if members else ()
    return [Curve(label, depths[drawn], np.nanmean(shown, axis=-1), stderr, members, over)]


def _of_heads(values: xr.DataArray, by_head: Values) -> dict[int, Values]:
    """Return the curve of each head from values (point, head), nothing where there is one."""
    labels = values[HEAD].values
    members = dict(zip(map(int, labels), by_head.T, strict=True))
    found = {head: member for head, member in members.items() if np.isfinite(member).any()}
    return found if len(found) > 1 else {}


def _relative_depth(values: xr.DataArray, layers: Values, drawn: npt.NDArray[np.intp]) -> Values:
    if RELATIVE_DEPTH in values.coords:
        depths = values.coords[RELATIVE_DEPTH].transpose(..., LAYER).values.astype(np.float64)
        own: Values = depths.reshape(-1, len(layers))[0]
        return own
    return layers / max(1.0, float(layers[drawn].max()))


def _over_steps(label: str, values: xr.DataArray, errors: xr.DataArray, x: Abscissa) -> list[Curve]:
    heads = values.values[0, :, :, 0]
    present = np.isfinite(heads).any(axis=-1)
    steps = np.flatnonzero(present.any(axis=1))
    layers = np.flatnonzero(present.any(axis=0))
    if len(steps) == 0:
        return []
    # The embeddings are no block: they have no more distinct rows than the vocabulary has tokens.
    blocks = layers[values[LAYER].values[layers] > 0]
    layers = blocks if len(blocks) else layers
    steps = steps[present[np.ix_(steps, layers)].any(axis=1)]
    here = np.ix_(steps, layers)
    by_layer = values.mean(HEAD).values[0, :, :, 0][here]
    deviations = errors.values[0, :, :, 0][here].reshape(len(steps), -1)
    known = np.isfinite(heads[here]).reshape(len(steps), -1)
    numbers = values[LAYER].values[layers]
    members = {int(number): by_layer[:, i] for i, number in enumerate(numbers)}
    of_heads = _of_heads(values, heads[here][:, 0])
    over = ("blocks",) * (len(members) > 1) + ("heads",) * (len(of_heads) > 1)
    members = members if len(members) > 1 else of_heads
    mean = np.nanmean(by_layer, axis=1)
    at = values[x].values[steps].astype(np.float64)
    return [Curve(label, at, mean, _mean_where_known(deviations, known), members, over)]


def _mean_where_known(deviations: Values, present: npt.NDArray[np.bool_]) -> Values:
    """Return the mean of each row (point), NaN where one of the values has no standard error."""
    mean: Values = np.where(present, deviations, 0.0).sum(axis=-1) / present.sum(axis=-1)
    return mean
