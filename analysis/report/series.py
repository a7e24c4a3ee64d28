"""The results of one model as axes, places in the number pool, and nothing else."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import xarray as xr

from analysis.metrics.metric import STDERR
from analysis.report.measured import Measured
from analysis.report.numbers import COUNT_BITS, ERROR_BITS, VALUE_BITS, NumberPool
from analysis.report.thinning import (
    MOST_COMPONENTS,
    Limits,
    Positions,
    spread,
    spread_logarithmically,
)
from store.identity import JSON
from store.schema import BLOCK, HEAD, KEY_VALUE_HEAD, LAYER, POPULATION, STEP

_COUNT: Final = re.compile(r"(^|_)n($|_)")
_KEYS: Final = (STEP, LAYER, BLOCK, POPULATION)
_WIDE: Final = 8
"""Numbers a layer beyond which a variable is thinned as a vector."""


def is_count(name: str) -> bool:
    """Return whether a result variable counts rows: ``n``, ``n_sequences``, ``neighbors_n``."""
    return _COUNT.search(name) is not None


@dataclass
class Axes:
    """Lists of labels that variables share, each kept once."""

    labels: list[list[int | float | str]] = field(default_factory=list)
    _places: dict[tuple[int | float | str, ...], int] = field(default_factory=dict)

    def add(self, labels: list[int | float | str]) -> int:
        """Return the number of a list of labels, kept if it is new."""
        key = tuple(labels)
        if key not in self._places:
            self._places[key] = len(self.labels)
            self.labels.append(labels)
        return self._places[key]


def pack_series(
    measured: Measured, axes: Axes, pool: NumberPool, limits: Limits
) -> dict[str, JSON]:
    """Put the metrics of a model into the pool, in ``page/numbers.js``'s terms.

    Args:
        measured: The model.
        axes: Receives the labels.
        pool: Receives the numbers.
        limits: How many steps to keep.

    Returns:
        For each variable its dimensions, each with the number of its axis, where its values start,
        and where its standard errors start, if it has any; for a metric of a sample, the settings
        of each sample that values are of, and where the numbers of these start if they are several.
    """
    packed: dict[str, JSON] = {}
    for name in measured.metric_names:
        assert measured.results is not None
        kept = _thinned(measured.results[name], limits)
        bits = COUNT_BITS if is_count(name) else VALUE_BITS
        packed[name] = {
            "dims": [[str(dim), axes.add(_labels(kept, str(dim)))] for dim in kept.dims],
            "at": pool.add(kept.values, bits),
            "errors": _pack_errors(measured.results, name, kept, limits, pool),
            **_pack_samples(measured, name, kept, pool),
        }
    if loss := _loss(measured):
        steps, values = zip(*loss.items(), strict=True)
        packed["loss"] = {
            "dims": [[STEP, axes.add(list(steps))]],
            "at": pool.add(np.array(values), VALUE_BITS),
            "errors": None,
        }
    return packed


def _pack_errors(
    results: xr.Dataset, name: str, kept: xr.DataArray, limits: Limits, pool: NumberPool
) -> int | None:
    errors = results.get(name + STDERR)
    if errors is None or set(errors.dims) != set(kept.dims):
        return None
    return pool.add(_thinned(errors.transpose(*results[name].dims), limits).values, ERROR_BITS)


def _pack_samples(
    measured: Measured, name: str, kept: xr.DataArray, pool: NumberPool
) -> dict[str, JSON]:
    """Say of which samples values are, nothing where they are of none."""
    samples = measured.samples.get(name)
    if samples is None:
        return {}
    own = samples.reindex({dim: kept[dim].values for dim in samples.dims}, fill_value="")
    there = own.broadcast_like(kept).transpose(*kept.dims).values
    names = sorted(set(there[kept.notnull().values].tolist()) - {""})
    if not names:
        return {}
    settings: list[JSON] = [json.loads(one) for one in names]
    at = None
    if len(names) > 1:
        numbers = np.full(kept.shape, np.nan)
        for number, one in enumerate(names):
            numbers[there == one] = number
        at = pool.add(numbers, COUNT_BITS)
    return {"samples": {"settings": settings, "at": at}}


def count_numbers(measured: Measured, limits: Limits) -> int:
    """Return how many numbers ``pack_series`` would put into the pool, about."""
    total = 0
    for name in measured.metric_names:
        assert measured.results is not None
        values = measured.results[name]
        kept = {str(dim): size for dim, size in values.sizes.items()}
        kept.update((dim, len(places)) for dim, places in _kept(values, limits).items())
        total += math.prod(kept.values()) * (2 if name + STDERR in measured.results else 1)
    return total


def _thinned(values: xr.DataArray, limits: Limits) -> xr.DataArray:
    return values.isel(_kept(values, limits))


def _kept(values: xr.DataArray, limits: Limits) -> dict[str, Positions]:
    others = {str(dim): size for dim, size in values.sizes.items() if dim not in _KEYS}
    wide = math.prod(others.values()) > _WIDE
    chosen = {
        dim: spread_logarithmically(size, MOST_COMPONENTS)
        for dim, size in others.items()
        if dim not in (HEAD, KEY_VALUE_HEAD)
    }
    if STEP in values.dims:
        chosen[STEP] = spread(values.sizes[STEP], limits.wide_steps if wide else limits.steps)
    return chosen


def _labels(values: xr.DataArray, dim: str) -> list[int | float | str]:
    if dim not in values.coords:
        return list(range(values.sizes[dim]))
    labels: list[int | float | str] = values[dim].values.tolist()
    return labels


def _loss(measured: Measured) -> Mapping[int, float]:
    return {
        held.step: held.loss
        for held in measured.held.steps
        if held.complete and np.isfinite(held.loss)
    }
