"""Results of two moments or two stores side by side: what has changed, and beyond its error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import xarray as xr

from analysis.errors import UnknownPopulationError
from analysis.metrics.metric import STDERR
from analysis.samples import samples_of, tell_samples
from flows.results import Selection, open_results
from store.errors import StoreError, StoreNotFoundError, UnknownNameError
from store.history import NOW, find_snapshot, history, tags
from store.repository import Repository
from store.schema import LAYER, MODEL, POPULATION, STEP

MARGIN: Final = 2.0
"""Standard errors of a difference that it has to exceed to count."""

_DIMS: Final = (MODEL, STEP, LAYER)
_SHOWN: Final = ("before", "after", "difference", "stderr")

UNKNOWN: Final = "?"
"""Verdict on a difference whose standard error is not known."""

Record = dict[str, str | int | float]


@dataclass(frozen=True)
class Side:
    """One of the two sides of a comparison.

    Attributes:
        name: What the user called it.
        store: The store.
        snapshot: Id of the snapshot.
    """

    name: str
    store: str
    snapshot: str


def find_side(name: str, store: str) -> Side:
    """Find what a name means: a tag or snapshot of the store, else another store.

    Args:
        name: A tag, the id of a snapshot, ``now`` for the newest one, or where a store is, with
            ``@TAG`` after it for one of its tags.
        store: The store whose tags and snapshots are meant.

    Raises:
        UnknownNameError: If it is none of these.
    """
    known: dict[str, str] = {}
    try:
        repository = Repository.open(store, read_only=True)
        known = {one.id: one.id for one in history(repository)} | tags(repository)
        known[NOW] = repository.snapshot_id()
    except StoreNotFoundError:
        pass
    if name in known:
        return Side(name, store, known[name])
    for uri, tag in ((name, None), name.rsplit("@", 1) if "@" in name else (None, None)):
        try:
            other = Repository.open(uri, read_only=True) if uri else None
        except StoreError:
            continue
        if other is not None:
            return Side(name, other.uri, find_snapshot(other, tag=tag))
    raise UnknownNameError("tag, snapshot or store", name, known, store)


@dataclass(frozen=True)
class Pair:
    """A model of one side and the model of the other that it is compared with.

    Attributes:
        before: Its name before.
        after: Its name after.
    """

    before: str
    after: str

    def __str__(self) -> str:
        return self.before if self.before == self.after else f"{self.before} → {self.after}"


def compare_results(
    before: Side,
    after: Side,
    metric: str,
    *,
    corpus: str | None = None,
    pairs: Sequence[Pair] | None = None,
    population: str = "content",
) -> dict[str, xr.Dataset]:
    """Compare the results of a metric before and after, wherever both have them.

    Args:
        before: One side.
        after: The other.
        metric: Name of a metric of one number a layer.
        corpus: Only this corpus.
        pairs: Which models are compared; by default those of one name.
        population: Rows that the values are about.

    Returns:
        For each corpus of both: ``before``, ``after``, ``difference`` (after − before) and
        ``stderr``, the standard error of the difference with both errors taken as independent
        (model, step, layer); a model is called like its pair. Values of different samples are not
        compared: ``other_sample`` is 1 there, and the rest NaN. The attribute ``sample`` says
        which one the others are of.

    Raises:
        UnknownMetricError: If there is no such metric.
        UnknownPopulationError: If the results have no such population.
        StoreError: If one side has no results, or the two have nothing in common.
    """
    sides = []
    for side, which in ((before, "before"), (after, "after")):
        models = None if pairs is None else [getattr(pair, which) for pair in pairs]
        sides.append(
            open_results(side.store, metric, Selection(corpus, models, snapshot=side.snapshot))
        )
    found = {}
    samples: list[str] = []
    for name in _corpora_with(population, sides):
        tables = [_values(side[name], metric, population) for side in sides]
        common = [str(model) for model in tables[0][MODEL].values]
        own = pairs or [Pair(model, model) for model in common if model in tables[1][MODEL]]
        compared = _difference(tables[0], tables[1], own)
        if left_out({name: compared}):
            samples += [_samples_told(table) for table in tables]
        if compared.sizes[MODEL] and np.isfinite(compared["difference"]).any():
            long_name = sides[1][name][metric].attrs.get("long_name", metric)
            found[name] = compared.assign_attrs(long_name=long_name)
    if not found and samples:
        raise StoreError(
            f"{before.name} and {after.name} have values of {metric} for {population!r} of"
            f" different samples alone ({samples[0]} and {samples[1]}): expected the same settings"
            " on both sides; compute one side anew with the --sample and --seed of the other"
        )
    if not found:
        raise StoreError(
            f"{before.name} and {after.name} have no value of {metric} for {population!r} in"
            " common: expected the same corpus, model, step and layer on both sides, or --pair"
        )
    return found


def _corpora_with(population: str, sides: Sequence[Mapping[str, xr.Dataset]]) -> list[str]:
    """Return the corpora of both sides whose results have a population on both.

    Raises:
        UnknownPopulationError: If none has it, and there are any.
    """
    known = {
        name: [{str(one) for one in side[name][POPULATION].values} for side in sides]
        for name in sides[0]
        if name in sides[1]
    }
    chosen = [name for name, own in known.items() if all(population in each for each in own)]
    if known and not chosen:
        every = sorted(set().union(*(each for own in known.values() for each in own)))
        raise UnknownPopulationError(population, every)
    return chosen


def left_out(compared: Mapping[str, xr.Dataset]) -> int:
    """Return how many places both sides have, but with values of different samples."""
    return sum(int(found["other_sample"].sum()) for found in compared.values() if found)


def samples_compared(compared: Mapping[str, Mapping[str, xr.Dataset]]) -> list[str]:
    """Say of which samples values on both sides are, a text a metric that is of some.

    Args:
        compared: For each metric and corpus, the comparison.
    """
    told = (
        f"{metric}: {found.attrs['sample']}"
        for metric, by_corpus in compared.items()
        for found in by_corpus.values()
        if found.attrs.get("sample")
    )
    return list(dict.fromkeys(told))


def _samples_told(table: xr.Dataset) -> str:
    there = table["value"].notnull().values
    return tell_samples(table["sample"].values[there].tolist()) or "no sample"


def _values(results: xr.Dataset, metric: str, population: str) -> xr.Dataset:
    samples = samples_of(results, metric)
    chosen = results.assign(sample=samples).sel({POPULATION: population}, drop=True)
    if set(chosen[metric].dims) != set(_DIMS):
        raise StoreError(f"{metric} is no single number a layer: choose another metric")
    values = chosen[metric].transpose(*_DIMS)
    errors = chosen.get(metric + STDERR, xr.full_like(values, np.nan)).transpose(*_DIMS)
    sample = chosen["sample"].broadcast_like(values).transpose(*_DIMS)
    return xr.Dataset({"value": values, "stderr": errors, "sample": sample}).load()


def _difference(before: xr.Dataset, after: xr.Dataset, pairs: Sequence[Pair]) -> xr.Dataset:
    parts = []
    samples: list[str] = []
    for pair in pairs:
        own = [
            side.sel({MODEL: [name]}).assign_coords({MODEL: [str(pair)]})
            for side, name in ((before, pair.before), (after, pair.after))
        ]
        one, other = xr.align(*own, join="inner")
        difference = other["value"] - one["value"]
        same = one["sample"] == other["sample"]
        compared = {
            "before": one["value"],
            "after": other["value"],
            "difference": difference,
            "stderr": np.hypot(one["stderr"], other["stderr"]),
        }
        samples += one["sample"].values[(same & difference.notnull()).values].tolist()
        found = xr.Dataset(compared).where(same)
        parts.append(found.assign(other_sample=(difference.notnull() & ~same).astype(np.float64)))
    if not parts:
        return xr.Dataset(coords={MODEL: []})
    return xr.concat(parts, MODEL, join="outer").assign_attrs(sample=tell_samples(samples))


def difference_records(metric: str, compared: Mapping[str, xr.Dataset]) -> list[Record]:
    """Return a row for each place that both sides have: values, difference, error, verdict.

    ``beyond_error`` is whether the difference exceeds two of its standard errors, ``yes`` or
    ``no``, and ``?`` where its standard error is unknown.
    """
    records: list[Record] = []
    for corpus, found in compared.items():
        shown = found[list(_SHOWN)]
        frame = shown.to_dataframe(dim_order=list(_DIMS)).dropna(subset="difference")
        for row in frame.reset_index().to_dict("records"):
            record: Record = {
                "corpus": corpus,
                **{dim: row[dim] for dim in _DIMS},
                "metric": metric,
            }
            record |= {name: row[name] for name in _SHOWN}
            record["beyond_error"] = _verdict(row["difference"], row["stderr"])
            records.append(record)
    return records


def _verdict(difference: float, stderr: float) -> str:
    if np.isnan(stderr):
        return UNKNOWN
    return "yes" if abs(difference) > MARGIN * stderr else "no"


def tell_differences(records: Sequence[Record], other_sample: int) -> str:
    """Say how many differences exceed two of their standard errors, and which cannot be told.

    Args:
        records: What :func:`difference_records` found.
        other_sample: How many places were left out as their values are of different samples.
    """
    verdicts = [record["beyond_error"] for record in records]
    unknown = verdicts.count(UNKNOWN)
    known = len(verdicts) - unknown
    told = f"{verdicts.count('yes')} of {known} differences exceed two standard errors of theirs"
    if unknown:
        told += f"; {unknown} more have no known standard error ({UNKNOWN})"
    if other_sample:
        told += (
            f"; {other_sample} left out, as their values before and after have other settings"
            " (sample or seed)"
        )
    return f"{told}."
