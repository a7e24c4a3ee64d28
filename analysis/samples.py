"""The sample that values of a metric come from, told beside them: other samples, other values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import xarray as xr

from analysis.curves import Abscissa, Hue, shown_population
from store.errors import StoreError
from store.identity import canonical
from store.metrics import open_settings
from store.schema import MODEL, POPULATION, STEP

SAMPLE_SETTINGS: Final = ("sample", "seed", "exclude_own_sequence")
"""Settings that say which rows a metric looked at, in the order in which they are shown."""

SEVERAL: Final = "several samples: "
"""How it begins what is said of values that are not of one sample."""


def samples_of(found: xr.Dataset, metric: str) -> xr.DataArray:
    """Return which sample each value of a metric is of.

    Args:
        found: Results that were opened from a store (model, step, layer, population), or a part of
            them that still says of which model, step, layer and population it is.
        metric: Name of one of them.

    Returns:
        JSON of the settings of the sample (model, step, layer, population), empty where the value
        is of no sample; without dimensions where none of the values is, or where it is not known
        which store they are from.
    """
    held = _settings(found, metric)
    if metric not in held:
        return xr.DataArray(np.array("", dtype=object))
    samples = samples_among(held[metric])
    kept = {dim: np.atleast_1d(found[dim].values) for dim in samples.dims if dim in found.coords}
    return samples.reindex(kept, fill_value="")


def _settings(found: xr.Dataset, metric: str) -> xr.Dataset:
    if not {"uri", "corpus", "snapshot"} <= set(found.attrs) or MODEL not in found.coords:
        return xr.Dataset()
    try:
        return open_settings(
            found.attrs["uri"],
            [metric],
            corpus=found.attrs["corpus"],
            models=[str(name) for name in np.atleast_1d(found[MODEL].values)],
            snapshot=found.attrs["snapshot"],
        )
    except StoreError:  # The results may have outlived their store.
        return xr.Dataset()


def samples_among(settings: xr.DataArray) -> xr.DataArray:
    """Return of settings, JSON, the part that says of which sample values are."""
    known = {text: _of_sample(text) for text in set(settings.values.ravel().tolist())}
    told = np.array([known[text] for text in settings.values.ravel()], dtype=object)
    return settings.copy(data=told.reshape(settings.shape))


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
    return f"{SEVERAL}{'; '.join(told)}" if len(told) > 1 else "".join(told)


def _named(settings: dict[str, int]) -> str:
    told = [f"{name} {settings[name]:,}" for name in ("sample", "seed") if name in settings]
    if settings.get("exclude_own_sequence"):
        told.append("neighbours in other sequences")
    return ", ".join(told)


def tell_drawn_samples(
    found: xr.Dataset, metric: str, x: Abscissa, hue: Hue, population: str | None
) -> str:
    """Say which samples the values are of that a figure of a metric shows.

    Args:
        found: Results that were opened from a store (model, step, layer, population).
        metric: Name of one of them.
        x: What runs along the figure; without steps, the last one of each curve is shown.
        hue: What tells the curves apart.
        population: Rows shown where they are not the hue; ``all`` for None, or the first.

    Raises:
        UnknownPopulationError: If the results have no such population.
    """
    values, samples = found[metric], samples_of(found, metric)
    if not samples.dims:
        return ""
    missing = [dim for dim in samples.dims if dim not in values.dims and dim in values.coords]
    # Arithmetic would read and compare the other coordinates, for nothing.
    values = values.drop_vars([name for name in values.coords if name not in samples.dims])
    values = values.expand_dims(missing)
    if hue != POPULATION and POPULATION in values.dims:
        chosen = {POPULATION: shown_population(values, population)}
        values, samples = values.sel(chosen), samples.sel(chosen)
    known = values.notnull()
    known = known.any([dim for dim in known.dims if dim not in samples.dims])
    if STEP not in (x, hue) and STEP in known.dims:
        steps = known.any([dim for dim in known.dims if dim not in (MODEL, STEP, hue)])
        last = known[STEP].where(steps).max(STEP)
        known = known & (known[STEP] == last)
    samples, known = xr.broadcast(samples, known)
    return tell_samples(samples.values[known.values].tolist())
