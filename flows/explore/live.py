"""What the explorer shows of a store, always as of its newest snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import xarray as xr

from analysis.boxes import result_name
from analysis.metrics.metric import STDERR
from analysis.samples import samples_of
from flows.explore.sites import HEADS, depths_of, metrics_of, steps_with
from flows.measurement import complete_steps
from store.catalogue import HeldModel, catalogue
from store.errors import UnknownNameError
from store.metrics import open_metrics
from store.repository import Repository
from store.schema import BLOCK, LAYER, MODEL, POPULATION, STEP, sites_among

_ONE_NUMBER = {MODEL, STEP, LAYER, BLOCK, POPULATION, *HEADS}


@dataclass(frozen=True)
class Values:
    """One metric for some models, steps and depths: a table of columns (value,).

    Attributes:
        model: Name of the model of each value.
        step: Its step.
        depth: Its layer or block, 0 for a site that has neither.
        value: The value; for a site with heads the mean over them.
        low: A standard error below it, or the lowest of the heads; NaN where neither is known.
        high: A standard error above it, or the highest of the heads.
        sample: JSON of the settings of the sample that it is of, empty where it is of every row.
    """

    model: npt.NDArray[np.object_]
    step: npt.NDArray[np.int64]
    depth: npt.NDArray[np.int64]
    value: npt.NDArray[np.float64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    sample: npt.NDArray[np.object_]

    @classmethod
    def none(cls) -> Values:
        """Return a table without rows."""
        names, whole, real = np.empty(0, object), np.empty(0, np.int64), np.empty(0)
        return cls(names, whole, whole, real, real, real, names)

    def where(self, keep: npt.NDArray[np.bool_]) -> Values:
        """Return the rows that are kept."""
        return Values(*(getattr(self, column.name)[keep] for column in fields(self)))


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

    def read_ahead(self) -> None:
        """Read what every page of this process is going to show."""
        for corpus in self.corpora:
            self._of(corpus)

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

    def sites(self, corpus: str, models: Sequence[str]) -> list[str]:
        """Return the sites that one of the models has."""
        held = self.models(corpus)
        chosen = (held[name] for name in models if name in held)
        return list(sites_among(site for model in chosen for site in model.sites))

    def metrics(self, corpus: str, site: str) -> list[str]:
        """Return the metrics with a number for each depth that were computed for some model."""
        results = self._of(corpus)
        return [name for name in metrics_of(site) if _is_one_number(results, name, site)]

    def populations(self, corpus: str) -> list[str]:
        """Return the populations that some metric was computed for."""
        results = self._of(corpus)
        return [str(name) for name in results[POPULATION].values] if POPULATION in results else []

    def steps(self, corpus: str, models: Sequence[str], site: str) -> list[int]:
        """Return the steps of the models that have a site, ascending."""
        held = self.models(corpus)
        return sorted(
            {step for name in models if name in held for step in steps_with(held[name], site)}
        )

    def deepest(self, corpus: str, models: Sequence[str], site: str) -> int:
        """Return the number of the deepest layer or block of a site in any of the models."""
        held = self.models(corpus)
        depths = [depth for name in models if name in held for depth in depths_of(held[name], site)]
        return max(depths, default=0)

    def values(
        self, corpus: str, site: str, metric: str, population: str, models: Sequence[str]
    ) -> Values:
        """Return the values of a metric that were computed."""
        results = self._of(corpus)
        wanted = [name for name in models if MODEL in results and name in results[MODEL].values]
        name = result_name(metric, site)
        if name not in results or population not in results[POPULATION].values or not wanted:
            return Values.none()
        both = results[[one for one in (name, name + STDERR) if one in results]]
        # Arithmetic would read and compare what tells steps apart, again and again.
        both = both.reset_coords(drop=True)
        table, low, high = _with_bars(both.sel({POPULATION: population, MODEL: wanted}), name)
        steps = table[STEP].values
        depths = table[table.dims[-1]].values if table.ndim == 3 else np.zeros(1, np.int64)
        shape = (*table.shape[:2], len(depths))
        values, lows, highs = (part.values.reshape(shape) for part in (table, low, high))
        samples = self._samples(corpus, site, metric, population, table).reshape(shape)
        known = np.nonzero(np.isfinite(values))
        i, j, k = known
        names = np.array(wanted, dtype=object)
        value, lower, upper = (part[known].astype(np.float64) for part in (values, lows, highs))
        return Values(names[i], steps[j], depths[k], value, lower, upper, samples[known])

    def _samples(
        self, corpus: str, site: str, metric: str, population: str, table: xr.DataArray
    ) -> npt.NDArray[np.object_]:
        """Return of which sample each value of a table is, read for metrics of samples alone."""
        if metrics_of(site)[metric].needs == "neighbors":
            name = result_name(metric, site)
            samples = _samples_at(self.uri, self.snapshot, corpus, name)
            if samples.dims:
                own = samples.sel({POPULATION: population, MODEL: table[MODEL].values})
                # All heads of a layer are measured together.
                own = own.isel({dim: 0 for dim in HEADS if dim in own.dims}, drop=True)
                return own.broadcast_like(table).transpose(*table.dims).values
        return np.full(table.shape, "", dtype=object)

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


@lru_cache(maxsize=8)
def _samples_at(uri: str, snapshot: str, corpus: str, name: str) -> xr.DataArray:
    return samples_of(_results_at(uri, snapshot, corpus), name)


def _with_bars(results: xr.Dataset, name: str) -> tuple[xr.DataArray, xr.DataArray, xr.DataArray]:
    """Return a metric (model, step, [layer or block]) and the ends of its bars."""
    values = results[name]
    order = [dim for dim in (MODEL, STEP, LAYER, BLOCK) if dim in values.dims]
    heads = [dim for dim in HEADS if dim in values.dims]
    if heads:
        table = values.mean(heads).transpose(*order)
        return table, values.min(heads).transpose(*order), values.max(heads).transpose(*order)
    table = values.transpose(*order)
    errors = results.get(name + STDERR, xr.full_like(table, np.nan)).transpose(*order)
    return table, table - errors, table + errors


def _is_one_number(results: xr.Dataset, metric: str, site: str) -> bool:
    name = result_name(metric, site)
    return name in results and set(map(str, results[name].dims)) <= _ONE_NUMBER
