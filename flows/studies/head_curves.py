"""Results of attention heads over training steps, as curves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
import xarray as xr

from analysis.curves import Curve
from flows.studies.study import Measured
from store.schema import BLOCK, HEAD, KEY_VALUE_HEAD, MODEL, POPULATION, STEP

HEADS: Final = (BLOCK, HEAD, KEY_VALUE_HEAD)


def head_values(
    measured: Measured, run: str, variable: str, pick: Mapping[str, object] | None = None
) -> xr.DataArray:
    """Return what every head of every seed of a run has (model, step, block, head)."""
    values = measured.results[variable].sel({MODEL: list(measured.members[run])})
    if POPULATION in values.dims:
        values = values.sel({POPULATION: "content"})
    values = values.sel(dict(pick or {})).sel({STEP: measured.steps(run)})
    inner = [dim for dim in values.dims if dim in HEADS]
    for dim in inner:
        values = values.dropna(dim, how="all")
    return values.transpose(MODEL, STEP, *inner)


def head_curve(
    measured: Measured,
    run: str,
    variable: str,
    *,
    label: str = "",
    pick: Mapping[str, object] | None = None,
    absolute: bool = False,
) -> Curve:
    """Return the mean over heads and blocks over steps, with its standard error over seeds.

    Args:
        measured: The results.
        run: A model with training steps.
        variable: Name of a result by block and head.
        label: What the curve is called, besides the run.
        pick: Labels of other dimensions to take.
        absolute: Whether values count without their sign.

    Returns:
        The curve; its members are the heads of the first seed.
    """
    values = head_values(measured, run, variable, pick)
    if absolute:
        values = abs(values)
    inner = [dim for dim in values.dims if dim in HEADS]
    by_seed = values.mean(inner).values
    seeds = len(by_seed)
    error = by_seed.std(axis=0, ddof=1) / math.sqrt(seeds) if seeds > 1 else by_seed[0] * np.nan
    flat = values.values[0].reshape(values.sizes[STEP], -1)
    return Curve(
        " ".join(filter(None, (run, label))),
        values[STEP].values.astype(np.float64),
        by_seed.mean(axis=0),
        error,
        dict(enumerate(flat.T)),
    )
