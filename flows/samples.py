"""The sample that values of a metric come from, told beside them: other samples, other values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import xarray as xr

from analysis.curves import Abscissa, Hue, shown_population
from store.identity import canonical
from store.metrics import open_settings
from store.schema import MODEL, POPULATION, STEP

SAMPLE_SETTINGS: Final = ("sample", "seed", "exclude_own_sequence")
"""Settings that say which rows a metric looked at, in the order in which they are shown."""


def samples_of(found: xr.Dataset, metric: str) -> xr.DataArray:
    """Return which sample each value of a metric is of.

    Args:
        found: Results that were opened from a store (model, step, layer, population).
        metric: Name of one of them.

    Returns:
        JSON of the settings of the sample (model, step, layer, population), empty where the value
        is of no sample; without dimensions where none of the values is.
    """
    held = open_settings(
        found.attrs["uri"],
        [metric],
        corpus=found.attrs["corpus"],
        models=[str(name) for name in found[MODEL].values],
        snapshot=found.attrs["snapshot"],
    )
    if metric not in held:
        return xr.DataArray(np.array("", dtype=object))
    settings = held[metric]
    known = {text: _of_sample(text) for text in set(settings.values.ravel().tolist())}
    told = np.array([known[text] for text in settings.values.ravel()], dtype=object)
    samples = settings.copy(data=told.reshape(settings.shape))
    return samples.reindex({dim: found[dim].values for dim in samples.dims}, fill_value="")


def _of_sample(settings: str) -> str:
    """Return the part of settings that is about the sample, empty where none is."""
    everything = json.loads(settings) if settings else {}
    own = {name: everything[name] for name in SAMPLE_SETTINGS if name in everything}
    return canonical(own) if own else ""


def sample_columns(samples: Iterable[str]) -> list[dict[str, str | int | float]]:
    """Return the settings of each of some samples by name: the same names for all of them."""
    parsed = [json.loads(text) if text else {} for text in samples]
    names = [name for name in SAMPLE_SETTINGS if any(name in each for each in parsed)]
    return [{name: each.get(name, "") for name in names} for each in parsed]


def sample_of(row: Mapping[str, str | int | float]) -> str:
    """Return the sample of a row of a table that has its columns, empty where it is of none."""
    own = {name: int(row[name]) for name in SAMPLE_SETTINGS if row.get(name, "") != ""}
    return canonical(own) if own else ""


def tell_samples(samples: Iterable[str]) -> str:
    """Say which samples values are of, and that they are several; nothing where they are of none.

    Args:
        samples: JSON of the settings of the sample of each value.
    """
    parsed = [json.loads(text) for text in sorted(set(samples)) if text]
    told = [_named(each) for each in sorted(parsed, key=lambda each: each.get("sample", 0))]
    return f"several samples: {'; '.join(told)}" if len(told) > 1 else "".join(told)


def _named(settings: dict[str, int]) -> str:
    told = [f"{name} {settings[name]:,}" for name in ("sample", "seed") if name in settings]
    if settings.get("exclude_own_sequence"):
        told.append("neighbours in other sequences")
    return ", ".join(told)


def tell_drawn_samples(
    found: xr.Dataset, metric: str, x: Abscissa, hue: Hue, population: str
) -> str:
    """Say which samples the values are of that a figure of a metric shows.

    Args:
        found: Results that were opened from a store (model, step, layer, population).
        metric: Name of one of them.
        x: What runs along the figure; without steps, the last one of each curve is shown.
        hue: What tells the curves apart.
        population: Rows shown where they are not the hue.

    Raises:
        UnknownPopulationError: If the results have no such population.
    """
    values, samples = found[metric], samples_of(found, metric)
    if not samples.dims:
        return ""
    if hue != POPULATION:
        chosen = {POPULATION: shown_population(values, population)}
        values, samples = values.sel(chosen), samples.sel(chosen)
    known = values.notnull()
    inner = [dim for dim in known.dims if dim not in samples.dims]
    known = known.any(inner)
    if STEP not in (x, hue):
        steps = known.any([dim for dim in known.dims if dim not in (MODEL, STEP, hue)])
        last = known[STEP].where(steps).max(STEP)
        known = known & (known[STEP] == last)
    samples, known = xr.broadcast(samples, known)
    return tell_samples(samples.values[known.values].tolist())
