"""Runs of one model with several seeds: their mean, and how far it is off."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import numpy as np
import xarray as xr

from analysis.metrics.metric import STDERR
from store.schema import MODEL, STEP

_SEED: Final = re.compile(r"[-_]seed[-_]?\d+")


def families(models: Iterable[str]) -> dict[str, list[str]]:
    """Group models that differ in their seed alone, by the name that is left without it.

    ``run-seed1`` and ``run-seed2`` are seeds of ``run``, and so is ``run`` itself.
    """
    found: dict[str, list[str]] = {}
    for model in models:
        found.setdefault(_SEED.sub("", model), []).append(model)
    return found


def average_seeds(results: xr.Dataset) -> tuple[xr.Dataset, dict[str, list[str]]]:
    """Put the mean over its seeds in the place of the runs of each model.

    Args:
        results: Results (model, ...).

    Returns:
        The means; their standard errors are those over seeds where there are several, and those of
        the results where there is one. A step counts where every seed has it. And the models that
        each is the mean of, by its name.
    """
    means, members = [], {}
    for family, runs in families(map(str, results[MODEL].values)).items():
        name = family if len(runs) > 1 else runs[0]
        members[name] = runs
        own = results.sel({MODEL: runs})
        mean = own if len(runs) == 1 else _mean(own, len(runs))
        means.append(mean.assign_coords({MODEL: [name]}))
    joined = xr.concat(means, MODEL, data_vars="all", coords="different", compat="equals")
    return joined.assign_attrs(results.attrs), members


def _mean(own: xr.Dataset, seeds: int) -> xr.Dataset:
    """Return means over the models of a Dataset, with the standard errors of these means."""
    held = own["n"].notnull()
    common = held.any([dim for dim in held.dims if dim not in (MODEL, STEP)]).all(MODEL)
    variables = {}
    for name, values in own.data_vars.items():
        if MODEL not in values.dims or str(name).endswith(STDERR):
            continue
        known = values.where(common) if STEP in values.dims else values
        spread = known.std(MODEL, ddof=1, skipna=False) / np.sqrt(seeds)
        for key, array in ((name, known.mean(MODEL, skipna=False)), (f"{name}{STDERR}", spread)):
            variables[key] = array.expand_dims(MODEL).transpose(*values.dims)
            variables[key].attrs = dict(values.attrs)
    kept = {
        name: value.isel({MODEL: [0]}) if MODEL in value.dims else value
        for name, value in own.coords.items()
        if name != MODEL
    }
    return xr.Dataset(variables).assign_coords(kept)
