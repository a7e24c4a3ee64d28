"""Results of attention heads over training steps, as curves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
import xarray as xr

from analysis.curves import Curve
from analysis.query_key import compare_queries_keys
from flows.studies.study import Measured
from store.schema import BLOCK, HEAD, KEY_VALUE_HEAD, MODEL, POPULATION, STEP

ATTENTION_ROWS: Final = {
    "attention_logit_deviation": "deviation of the attention logits of a row",
    "attention_max": "largest probability of a row",
    "attention_entropy": "entropy of a row over that of equal parts",
}
"""What is kept of every row of attention, by its site."""

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


def compare_heads(results: xr.Dataset) -> xr.Dataset:
    """Add how queries and keys of each head lie to each other; drop the mean rows themselves."""
    populations = [str(name) for name in results[POPULATION].values]
    rows = "content" if "content" in populations else populations[0]
    compared = compare_queries_keys(results, population=rows)
    plain = results.drop_vars([name for name in results if str(name).endswith("mean_row")])
    return plain.drop_vars(list(compared), errors="ignore").merge(compared)
