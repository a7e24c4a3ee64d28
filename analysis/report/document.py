"""One JSON document with everything a report shows, small enough to be handed on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final, NamedTuple

from analysis.report.definitions import describe_metrics, describe_populations
from analysis.report.findings import KINDS, find
from analysis.report.holdings import describe_holding
from analysis.report.measured import Measured
from analysis.report.numbers import NumberPool
from analysis.report.series import Axes, pack_series
from analysis.report.thinning import LADDER, Limits
from store.identity import JSON
from store.schema import STEP

NUMBER_BYTES: Final = 4_200_000
"""Most bytes of packed numbers; with everything around them a page stays below 5 MB."""

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
    name: str, snapshot: str, models: Sequence[Measured], *, budget: int = NUMBER_BYTES
) -> Document:
    """Describe what the store holds and pack what was measured.

    Everything is kept when it fits; otherwise steps are left out, evenly, down to the first and
    the last of each model. The document says how many it shows.

    Args:
        name: Name of the store.
        snapshot: Snapshot that was read.
        models: The models, in the order of the report.
        budget: Most bytes of packed numbers.
    """
    packed, numbers = _fit(models, budget)
    content: dict[str, JSON] = {
        "store": name,
        "snapshot": snapshot,
        "models": [describe_holding(measured) for measured in models],
        "findings": _findings(models),
        "metrics": describe_metrics(models),
        "populations": describe_populations(models),
        "axes": list(packed.axes.labels),
        "series": packed.series,
        "thinning": _thinning(models, packed.limits),
    }
    return Document(content, numbers)


class _Packed(NamedTuple):
    limits: Limits
    series: list[dict[str, JSON]]
    axes: Axes
    pool: NumberPool


def _fit(models: Sequence[Measured], budget: int) -> tuple[_Packed, str]:
    """Pack with the widest limits that fit the budget, or the narrowest there are."""
    smallest = _pack(models, LADDER[-1])
    numbers = smallest.pool.encode()
    bytes_a_number = len(numbers) / max(1, smallest.pool.size)
    for limits in LADDER[:-1]:
        packed = _pack(models, limits)
        if packed.pool.size * bytes_a_number <= _SLACK * budget:
            encoded = packed.pool.encode()
            if len(encoded) <= budget:
                return packed, encoded
    return smallest, numbers


def _pack(models: Sequence[Measured], limits: Limits) -> _Packed:
    axes, pool = Axes(), NumberPool()
    series = [pack_series(measured, axes, pool, limits) for measured in models]
    return _Packed(limits, series, axes, pool)


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
