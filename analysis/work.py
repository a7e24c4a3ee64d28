"""Which slabs of a model have to be measured, and how their results are labelled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import xarray as xr

from analysis.boxes import halves_of, head_labels, place_labels, result_name
from analysis.errors import InputError
from analysis.groups import GROUPS
from analysis.heads import has_rows, has_values
from analysis.metrics.metric import Metric
from analysis.metrics.values import VALUE_METRICS
from analysis.plan import Plan
from analysis.tasks import SlabTask
from store.arrays import member
from store.metrics import Definition, missing_metrics
from store.repository import Repository
from store.schema import POPULATION, ROW_CHOICE, STEP
from store.slab import Slab, slabs

ONE_ROW_LACKS: Final = frozenset({"average_cosine_within"})
"""Metrics without a value where one row of each sequence is kept."""


@dataclass(frozen=True)
class Work:
    """Slabs to measure, and how much of what was asked for that is.

    Attributes:
        tasks: One task a slab of which anything is missing or stale.
        missing: Values (metric, step, layer, population) that are.
        current: Values asked for that are not.
        plan: What is wanted of the site.
        left_out: Metrics that cannot be had, since only some rows of each sequence are kept.
    """

    tasks: list[SlabTask]
    missing: int
    current: int
    plan: Plan
    left_out: tuple[str, ...] = ()


def find_work(
    repository: Repository,
    path: str,
    snapshot: str,
    plan: Plan,
    *,
    site: str,
    steps: Sequence[int] | None,
    layers: Sequence[int] | None,
) -> Work:
    """Compare what is wanted of a site with what the store holds.

    Args:
        repository: The store.
        path: Group of the model.
        snapshot: Snapshot whose activations are read.
        plan: What is wanted of every slab.
        site: Name of the site.
        steps: Steps, None for all complete ones.
        layers: Layers or blocks, None for all.

    Raises:
        UnknownNameError: If the model, the site, a step or a layer is not in the store.
        InputError: If the site has no rows (token, dim), or no metric can be had of those kept.
    """
    found = slabs(repository, path, site=site, steps=steps, layers=layers, snapshot=snapshot)
    if found:
        plan = _plan_of_site(plan, found[0])
    left_out = _without_sequences(repository, path, snapshot, plan)
    plan = replace(plan, metrics=tuple(one for one in plan.metrics if one.name not in left_out))
    places = {slab: place_labels(slab) for slab in found}
    heads = head_labels(found[0]) if found else {}
    tasks: list[SlabTask] = []
    missing = current = 0
    halves = [
        (half, _missing(repository, path, snapshot, half, site, list(places.values()), heads))
        for half in halves_of(plan)
    ]
    nonfinite = nonfinite_slots(repository, path, snapshot, found)
    for slab, place in places.items():
        parts = []
        for half, absent in halves:
            here = absent.sel(place)
            missing += int(here.sum())
            current += int(here.size - here.sum())
            parts.append(_narrowed(half, here))
        needed = _joined(plan, parts)
        if needed.metrics:
            drop = slab.slot in nonfinite
            tasks.append(SlabTask(slab, replace(needed, drop_nonfinite=drop)))
    return Work(tasks, missing, current, plan, left_out)


def _without_sequences(
    repository: Repository, path: str, snapshot: str, plan: Plan
) -> tuple[str, ...]:
    """Return the metrics of whole sequences where not every row of a sequence is kept.

    Raises:
        InputError: If there are no others.
    """
    group = repository.read(snapshot)[path]
    chosen = group.attrs.asdict().get(ROW_CHOICE)
    if chosen is None:
        return ()
    missed = {one.name for one in plan.metrics if one.needs == "sequences"}
    if isinstance(chosen, Mapping) and chosen.get("kind") != "sample":
        missed |= {one.name for one in plan.metrics if one.name in ONE_ROW_LACKS}
    if missed and len(missed) == len(plan.metrics):
        raise InputError(
            f"{', '.join(sorted(missed))}: needs whole sequences, of which {path} keeps {chosen}"
        )
    return tuple(sorted(missed))


def _plan_of_site(plan: Plan, slab: Slab) -> Plan:
    """Return a plan for a site: other metrics where it has a number a token, not a row."""
    if has_rows(slab):
        return plan
    if not has_values(slab):
        raise InputError(
            f"site {slab.site!r} has the dimensions {slab.dims}; only sites of one row or number a"
            " token, or one a token and head, can be measured"
        )
    populations = tuple(one for one in plan.populations if not (one.typical or one.unit))
    if not populations:
        raise InputError(
            f"site {slab.site!r} has numbers, not rows: only 'all' and 'content' can be told apart"
        )
    return replace(plan, metrics=VALUE_METRICS, populations=populations, neighbor_populations=())


def definitions_of(plan: Plan, site: str) -> list[Definition]:
    """Return what the values of the metrics of a plan depend on, besides the activations."""
    return [
        Definition(result_name(metric.name, site), metric.version, _settings(metric, plan))
        for metric in plan.metrics
    ]


def _settings(metric: Metric, plan: Plan) -> dict[str, int]:
    if metric.needs == "neighbors":
        excluded = {"exclude_own_sequence": 1} if plan.exclude_own_sequence else {}
        return {"sample": plan.sample, "seed": plan.seed} | excluded
    return {"groups": GROUPS}


def _missing(
    repository: Repository,
    path: str,
    snapshot: str,
    plan: Plan,
    site: str,
    places: Sequence[dict[str, int]],
    heads: dict[str, list[int]],
) -> xr.DataArray:
    """Return what is missing (metric, step, layer, population, ...) of one half of a plan."""
    names = [population.name for population in (*plan.populations, *plan.neighbor_populations)]
    labels = {
        name: list(dict.fromkeys(place[name] for place in places)) for name in (places or [{}])[0]
    }
    steps = labels.pop(STEP, [])
    return missing_metrics(
        repository,
        path,
        definitions_of(plan, site),
        snapshot=snapshot,
        steps=steps,
        **labels,
        **heads,
        **{POPULATION: names},
    )


def _narrowed(half: Plan, missing: xr.DataArray) -> Plan:
    """Leave in a half of a plan what is missing (metric, population, ...) of a slab."""
    metrics = missing.any([dim for dim in missing.dims if dim != "metric"]).values
    chosen = missing.any([dim for dim in missing.dims if dim != POPULATION]).values
    populations = (*half.populations, *half.neighbor_populations)
    kept = tuple(p for p, wanted in zip(populations, chosen, strict=True) if wanted)
    return replace(
        half,
        metrics=tuple(m for m, wanted in zip(half.metrics, metrics, strict=True) if wanted),
        populations=kept if half.populations else (),
        neighbor_populations=kept if half.neighbor_populations else (),
    )


def _joined(plan: Plan, parts: Sequence[Plan]) -> Plan:
    return replace(
        plan,
        metrics=tuple(metric for part in parts for metric in part.metrics),
        populations=tuple(p for part in parts for p in part.populations),
        neighbor_populations=tuple(p for part in parts for p in part.neighbor_populations),
    )


def nonfinite_slots(
    repository: Repository, path: str, snapshot: str, found: Sequence[Slab]
) -> set[int]:
    """Return the slots of the steps that were stored with NaN or infinite values."""
    counts = member(repository.read(snapshot), f"{path}/nonfinite")
    slots = sorted({slab.slot for slab in found})
    return {slot for slot in slots if int(np.asarray(counts[slot])) > 0}
