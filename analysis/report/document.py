"""One JSON document with everything a report shows, small enough to be handed on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final, NamedTuple

from analysis.report.definitions import describe_metrics, describe_populations
from analysis.report.findings import KINDS, find
from analysis.report.holdings import describe_holding
from analysis.report.measured import Measured
from analysis.report.numbers import NumberPool
from analysis.report.series import Axes, count_numbers, pack_series
from analysis.report.thinning import LADDER, Limits
from store.identity import JSON
from store.schema import STEP

PAGE_BYTES: Final = 4_800_000
"""Most bytes of a page, its script and style sheet not counted: these add less than 0.1 MB."""

LEAST_NUMBER_BYTES: Final = 100_000
"""What the numbers may take in any case, however long the tables of steps are."""

_SLACK: Final = 1.3
"""How far the few numbers of the narrowest limits may mislead about how all of them compress."""


class Document(NamedTuple):
    """What a page is filled with.

    Attributes:
        content: Names, tables, axes, and where numbers start in the pool.
        numbers: The pool, packed as text.
    """

    content: dict[str, JSON]
    numbers: str


def build_document(
    name: str, snapshot: str, models: Sequence[Measured], *, budget: int = PAGE_BYTES
) -> Document:
    """Describe what the store holds and pack what was measured.

    Everything is kept when it fits; otherwise steps are left out, evenly, down to the first and
    the last of each model. The document says how many it shows.

    Args:
        name: Name of the store.
        snapshot: Snapshot that was read.
        models: The models, in the order of the report.
        budget: Most bytes of the whole.
    """
    content: dict[str, JSON] = {
        "store": name,
        "snapshot": snapshot,
        "models": [describe_holding(measured) for measured in models],
        "findings": _findings(models),
        "metrics": describe_metrics(models),
        "populations": describe_populations(models),
    }
    packed = _fit(models, max(LEAST_NUMBER_BYTES, budget - len(json.dumps(content))))
    content["axes"] = list(packed.axes.labels)
    content["series"] = packed.series
    content["thinning"] = _thinning(models, packed.limits)
    return Document(content, packed.numbers)


class _Packed(NamedTuple):
    limits: Limits
    series: list[dict[str, JSON]]
    axes: Axes
    numbers: str


def _fit(models: Sequence[Measured], budget: int) -> _Packed:
    """Pack with the widest limits that fit the budget, or the narrowest there are."""
    smallest = _pack(models, LADDER[-1])
    bytes_a_number = len(smallest.numbers) / max(1, _count(models, LADDER[-1]))
    for limits in LADDER[:-1]:
        if _count(models, limits) * bytes_a_number <= _SLACK * budget:
            packed = _pack(models, limits)
            if len(packed.numbers) <= budget:
                return packed
    return smallest


def _count(models: Sequence[Measured], limits: Limits) -> int:
    return sum(count_numbers(measured, limits) for measured in models)


def _pack(models: Sequence[Measured], limits: Limits) -> _Packed:
    axes, pool = Axes(), NumberPool()
    series = [pack_series(measured, axes, pool, limits) for measured in models]
    return _Packed(limits, series, axes, pool.encode())


def _findings(models: Sequence[Measured]) -> list[JSON]:
    found = [finding for measured in models for finding in find(measured)]
    return [
        {**asdict(kind), "places": [[one.where, one.text] for one in found if one.kind == kind]}
        for kind in KINDS
        if any(one.kind == kind for one in found)
    ]


def _thinning(models: Sequence[Measured], limits: Limits) -> JSON:
    longest = max((_n_steps(measured) for measured in models), default=0)
    return {
        "longest": longest,
        "steps": min(limits.steps, longest),
        "wide_steps": min(limits.wide_steps, longest),
    }


def _n_steps(measured: Measured) -> int:
    return 0 if measured.results is None else measured.results.sizes.get(STEP, 0)
