"""What the explorer shows of a store, always as of its newest snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress

import numpy as np
import xarray as xr

from analysis.metrics import METRICS
from analysis.metrics.metric import STDERR
from flows.measurement import complete_steps
from store.catalogue import HeldModel, catalogue
from store.errors import UnknownNameError
from store.metrics import open_metrics
from store.repository import Repository
from store.schema import LAYER, MODEL, POPULATION, STEP

_ONE_NUMBER = {MODEL, STEP, LAYER, POPULATION}


@dataclass(frozen=True)
class Values:
    """One metric for some models, steps and layers: a table of columns of one length.

    Attributes:
        model: Name of the model of each value.
        step: Its step.
        layer: Its layer.
        value: The value.
        error: Its standard error, NaN where there is none.
    """

    model: list[str]
    step: list[int]
    layer: list[int]
    value: list[float]
    error: list[float]

    def where(self, keep: Sequence[bool]) -> Values:
        """Return the rows that are kept."""
        return Values(
            list(compress(self.model, keep)),
            list(compress(self.step, keep)),
            list(compress(self.layer, keep)),
            list(compress(self.value, keep)),
            list(compress(self.error, keep)),
        )


class LiveStore:
    """A store that others may be writing to."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.repository = Repository.open(uri, read_only=True)
        self.snapshot = ""
        self._held: tuple[HeldModel, ...] = ()
        self.refresh()

    def refresh(self) -> bool:
        """Go on to the newest snapshot, and return whether there was a newer one."""
        newest = self.repository.snapshot_id()
        if newest == self.snapshot:
            return False
        self.snapshot = newest
        self._held = _held_at(self.uri, newest)
        return True

    @property
    def corpora(self) -> list[str]:
        """Names of the corpora that models were run over."""
        return list(dict.fromkeys(held.corpus for held in self._held))

    def models(self, corpus: str) -> dict[str, HeldModel]:
        """Return the models with something stored, by the names that results have."""
        return {
            held.model if held.stack is None else f"{held.model}/{held.stack}": held
            for held in self._held
            if held.corpus == corpus and complete_steps(held)
        }

    def metrics(self, corpus: str) -> list[str]:
        """Return the metrics with a number for each layer that were computed for some model."""
        results = self._of(corpus)
        return [name for name in METRICS if name in results and _is_one_number(results[name])]

    def populations(self, corpus: str) -> list[str]:
        """Return the populations that some metric was computed for."""
        results = self._of(corpus)
        return [str(name) for name in results[POPULATION].values] if POPULATION in results else []

    def steps(self, corpus: str, models: list[str]) -> list[int]:
        """Return the steps that the models have, ascending."""
        held = self.models(corpus)
        return sorted(
            {step for name in models if name in held for step in complete_steps(held[name])}
        )

    def values(self, corpus: str, metric: str, population: str, models: list[str]) -> Values:
        """Return the values of a metric that were computed."""
        results = self._of(corpus)
        wanted = [name for name in models if MODEL in results and name in results[MODEL].values]
        found = Values([], [], [], [], [])
        if metric not in results or population not in results[POPULATION].values or not wanted:
            return found
        chosen = results[[name for name in (metric, metric + STDERR) if name in results]]
        chosen = chosen.sel({POPULATION: population, MODEL: wanted})
        table = chosen[metric].transpose(MODEL, STEP, LAYER)
        errors = chosen.get(metric + STDERR, xr.full_like(table, np.nan))
        deviations = errors.transpose(MODEL, STEP, LAYER).values
        values, steps, layers = table.values, table[STEP].values, table[LAYER].values
        for place in np.argwhere(np.isfinite(values)):
            i, j, k = place.tolist()
            found.model.append(wanted[i])
            found.step.append(int(steps[j]))
            found.layer.append(int(layers[k]))
            found.value.append(float(values[i, j, k]))
            found.error.append(float(deviations[i, j, k]))
        return found

    def _of(self, corpus: str) -> xr.Dataset:
        return _results_at(self.uri, self.snapshot, corpus)


@lru_cache(maxsize=2)
def _held_at(uri: str, snapshot: str) -> tuple[HeldModel, ...]:
    """Return what is held, read once for all pages of this process."""
    return tuple(catalogue(Repository.open(uri, read_only=True), snapshot=snapshot))


@lru_cache(maxsize=8)
def _results_at(uri: str, snapshot: str, corpus: str) -> xr.Dataset:
    """Return the metrics of a corpus, empty where there are none, for all pages as well."""
    try:
        return open_metrics(uri, corpus=corpus, snapshot=snapshot)
    except UnknownNameError:
        return xr.Dataset()


def _is_one_number(values: xr.DataArray) -> bool:
    return set(map(str, values.dims)) <= _ONE_NUMBER
