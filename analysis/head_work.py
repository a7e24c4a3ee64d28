"""Which queries and keys have to be measured together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import xarray as xr

from analysis.choose import MetricLike
from analysis.errors import InputError
from analysis.groups import GROUPS
from analysis.head_pairs import HeadPairTask, result_name
from analysis.metrics.heads import HEAD_METRICS
from analysis.metrics.metric import Metric
from analysis.plan import Plan
from analysis.work import nonfinite_slots
from store.metrics import Definition, missing_metrics
from store.repository import Repository
from store.schema import BLOCK, HEAD, POPULATION, STEP
from store.slab import Slab, slabs

Item = TypeVar("Item")

PAIRS: Final = {"": ("query", "key"), "_rotary": ("query_rotary", "key_rotary")}
"""Sites that are measured together, by what follows the names of their results."""

HEAD_RESULTS: Final = tuple(name + suffix for suffix in PAIRS for name in HEAD_METRICS)
"""Names of results about two sites."""


@dataclass(frozen=True)
class HeadWork:
    """Blocks to measure, and how much of what was asked for that is.

    Attributes:
        tasks: One task a block of which anything is missing or stale.
        missing: Values (metric, step, block, head, population) that are.
        current: Values asked for that are not.
        definitions: What the values depend on besides the activations.
    """

    tasks: tuple[HeadPairTask, ...] = ()
    missing: int = 0
    current: int = 0
    definitions: tuple[Definition, ...] = ()


def divide_metrics(
    metrics: Iterable[MetricLike] | None, sites: Sequence[str]
) -> tuple[Iterable[MetricLike] | None, tuple[Metric, ...]]:
    """Tell metrics of two sites from those of one.

    Args:
        metrics: Metrics or their names, None for all.
        sites: Sites that are measured.

    Returns:
        Metrics of one site, None for all of them; and those of two.

    Raises:
        InputError: If one of two sites is named, and no two such sites are measured.
    """
    if metrics is None:
        return None, tuple(HEAD_METRICS.values())
    if not isinstance(metrics, list | tuple):
        return metrics, ()
    paired = [one for one in metrics if isinstance(one, str) and one in HEAD_METRICS]
    if paired and not _pairs_among(sites):
        raise InputError(
            f"{paired[0]} is about queries and keys together; measure both, as the sites query,key"
            f" or query_rotary,key_rotary; got {','.join(sites)}"
        )
    others = [one for one in metrics if not (isinstance(one, str) and one in HEAD_METRICS)]
    return others, tuple(HEAD_METRICS[name] for name in dict.fromkeys(paired))


def find_head_work(
    repository: Repository,
    path: str,
    snapshot: str,
    plan: Plan,
    metrics: Sequence[Metric],
    *,
    sites: Sequence[str],
    steps: Sequence[int] | None,
    layers: Sequence[int] | None,
) -> HeadWork:
    """Compare what is wanted of queries and keys together with what the store holds.

    Populations that depend on the norms of rows are left out: a query and a key have one each.

    Args:
        repository: The store.
        path: Group of the model.
        snapshot: Snapshot whose activations are read.
        plan: Which populations are wanted.
        metrics: Metrics of two sites.
        sites: Sites that are measured.
        steps: Steps, None for all complete ones.
        layers: Blocks, None for all.
    """
    populations = tuple(one for one in plan.populations if not (one.typical or one.unit))
    parts = []
    for suffix in _pairs_among(sites) if metrics and populations else ():
        queries, keys = (
            _by_place(
                slabs(repository, path, site=site, steps=steps, layers=layers, snapshot=snapshot)
            )
            for site in PAIRS[suffix]
        )
        wanted = [
            HeadPairTask(queries[place], keys[place], suffix, tuple(metrics), populations)
            for place in queries
            if place in keys
        ]
        if wanted:
            parts.append(_still_wanted(repository, path, snapshot, wanted))
    return HeadWork(
        tuple(task for part in parts for task in part.tasks),
        sum(part.missing for part in parts),
        sum(part.current for part in parts),
        tuple(one for part in parts for one in part.definitions),
    )


def _pairs_among(sites: Sequence[str]) -> list[str]:
    return [suffix for suffix, both in PAIRS.items() if set(both) <= set(sites)]


def _by_place(found: Sequence[Slab]) -> dict[tuple[int, int], Slab]:
    """Return slabs by step and block."""
    return {_place(slab): slab for slab in found}


def _still_wanted(
    repository: Repository, path: str, snapshot: str, wanted: Sequence[HeadPairTask]
) -> HeadWork:
    """Leave of the tasks of a pair of sites what is missing or stale."""
    metrics, populations = wanted[0].metrics, wanted[0].populations
    definitions = [
        Definition(result_name(one.name, wanted[0].suffix), one.version, {"groups": GROUPS})
        for one in metrics
    ]
    places = [(task, *_place(task.queries)) for task in wanted]
    labels: dict[str, list[int] | list[str]] = {
        BLOCK: list(dict.fromkeys(block for _, _, block in places)),
        HEAD: list(range(wanted[0].queries.shape[0])),
        POPULATION: [population.name for population in populations],
    }
    steps = list(dict.fromkeys(step for _, step, _ in places))
    absent = missing_metrics(
        repository, path, definitions, snapshot=snapshot, steps=steps, **labels
    )
    nonfinite = nonfinite_slots(repository, path, snapshot, [task.queries for task in wanted])
    tasks, missing, current = [], 0, 0
    for task, step, block in places:
        here = absent.sel({STEP: step, BLOCK: block})
        missing += int(here.sum())
        current += int(here.size - here.sum())
        if here.any():
            tasks.append(
                replace(
                    task,
                    metrics=_where(metrics, here.any([HEAD, POPULATION])),
                    populations=_where(populations, here.any(["metric", HEAD])),
                    drop_nonfinite=task.queries.slot in nonfinite,
                )
            )
    return HeadWork(tuple(tasks), missing, current, tuple(definitions))


def _place(slab: Slab) -> tuple[int, int]:
    assert slab.label is not None
    return slab.step, slab.label[1]


def _where(items: Sequence[Item], wanted: xr.DataArray) -> tuple[Item, ...]:
    return tuple(one for one, kept in zip(items, wanted.values, strict=True) if kept)
