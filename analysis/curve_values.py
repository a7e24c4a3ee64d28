"""The values that curves are cut from: always by model, step, layer, population and head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import numpy as np
import xarray as xr

from analysis.errors import InputError, UnknownMetricError
from analysis.metrics.metric import STDERR
from store.errors import UnknownNameError
from store.schema import BLOCK, HEAD, KEY_VALUE_HEAD, LAYER, MODEL, POPULATION, STEP

RELATIVE_DEPTH: Final[Literal["relative_depth"]] = "relative_depth"

_DEFAULTS: Final = {MODEL: "model", STEP: 0, LAYER: 0, POPULATION: "all", HEAD: 0}

_MOST_TOLD: Final = 12


def labelled(results: xr.Dataset, metric: str) -> tuple[xr.DataArray, xr.DataArray]:
    """Return values and standard errors (model, step, layer, population, head).

    What is missing of these gets one label. A block counts as the layer that it gives, and heads
    of keys and values as heads.

    Args:
        results: Metrics of a store, or a part of them.
        metric: Name of one of them.

    Raises:
        UnknownMetricError: If the results hold no such metric.
        InputError: If it depends on anything else.
    """
    if metric not in results.data_vars:
        raise UnknownMetricError(metric, map(str, results.data_vars))
    values = _by_layer(results[metric], results)
    errors = results.get(metric + STDERR)
    errors = xr.full_like(values, np.nan) if errors is None else _by_layer(errors, results)
    extra = [str(name) for name in values.dims if name not in _DEFAULTS]
    if extra:
        label = _told(values, extra[0]).partition(",")[0]
        raise InputError(
            f"{metric} also depends on {', '.join(extra)}: select one first, as in "
            f"results.isel({extra[0]}=0), or with --select {extra[0]}={label}; there are"
            f" {_told(values, extra[0])}"
        )
    return _completed(values), _completed(errors)


def _completed(array: xr.DataArray) -> xr.DataArray:
    for dim, default in _DEFAULTS.items():
        if dim not in array.dims:
            label = array.coords[dim].item() if dim in array.coords else default
            array = array.drop_vars(dim, errors="ignore").expand_dims({dim: [label]})
    return array.transpose(*_DEFAULTS)


def _by_layer(values: xr.DataArray, results: xr.Dataset) -> xr.DataArray:
    """Return values of blocks and of heads of keys under the names of layers and heads."""
    names = {BLOCK: LAYER, KEY_VALUE_HEAD: HEAD}
    renamed = values.rename({name: to for name, to in names.items() if name in values.dims})
    depth = results.coords.get(RELATIVE_DEPTH)
    if BLOCK not in values.dims or depth is None or LAYER not in depth.dims:
        return renamed
    depths = depth.reindex({LAYER: renamed[LAYER].values})
    known = depth.dropna(LAYER, how="any")
    if known.sizes[LAYER] > 1:
        # Layers may not be those of the blocks, but depth grows evenly with their number.
        first, last = (known.isel({LAYER: place}, drop=True) for place in (0, -1))
        start, stop = known[LAYER].values[[0, -1]]
        depths = depths.fillna(first + (last - first) / (stop - start) * (renamed[LAYER] - start))
    return renamed.assign_coords({RELATIVE_DEPTH: depths})


def select(results: xr.Dataset, metric: str, wanted: Mapping[str, Sequence[str]]) -> xr.Dataset:
    """Narrow results to some labels along dimensions of one metric.

    Args:
        results: Metrics of a store.
        metric: Name of one of them.
        wanted: For each dimension its labels, as text; of a single one, the dimension goes.

    Raises:
        UnknownNameError: If the metric has no such dimension, or that no such label.
    """
    for dim, labels in wanted.items():
        if dim not in results[metric].dims:
            known = [str(name) for name in results[metric].dims if name not in (MODEL, POPULATION)]
            raise UnknownNameError("dimension", dim, known, metric)
        chosen = [_place(results[metric], dim, label) for label in labels]
        results = results.isel({dim: chosen[0] if len(chosen) == 1 else chosen})
    return results


def _place(values: xr.DataArray, dim: str, label: str) -> int:
    known = values[dim].values.tolist()
    for place, each in enumerate(known):
        if str(each) == label or (isinstance(each, int | float) and _number(label) == each):
            return place
    raise UnknownNameError(dim, label, [str(each) for each in known], str(values.name))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _told(values: xr.DataArray, dim: str) -> str:
    labels = [str(label) for label in values[dim].values.tolist()]
    if len(labels) > _MOST_TOLD:
        return f"{', '.join(labels[: _MOST_TOLD - 2])}, … {labels[-1]}"
    return ", ".join(labels)
