"""Long layers, divided over several tasks that each pass over a stretch of their rows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from analysis.blas import one_blas_thread
from analysis.evaluate import finish_moments
from analysis.head_pairs import HeadPairResult, HeadPairTask, measure_head_pair
from analysis.heads import SlabRows, head_dimension
from analysis.onepass import pass_part
from analysis.partial import PartialPass, combine, median_norm
from analysis.plan import moment_metrics, request_of
from analysis.tasks import SlabResult, SlabTask, run_slab_tasks, slab_bytes, stored_table
from store.slab import Slab

STRETCH_BYTES: Final = 1 << 30
"""Bytes of rows from which a layer is divided."""


@dataclass(frozen=True)
class StretchTask:
    """A stretch of a layer.

    Attributes:
        task: The layer, and which of its metrics of moments are measured.
        first: Its first row.
        stop: One past its last row.
        count: Stretches that the layer is divided into.
        exact: The median norm of content of the layer, where it is known.
    """

    task: SlabTask
    first: int
    stop: int
    count: int
    exact: float | None = None


@dataclass(frozen=True)
class StretchResult:
    """What a pass over a stretch found."""

    stretch: StretchTask
    found: PartialPass


Task = Sequence[SlabTask] | StretchTask | HeadPairTask
Outcome = Sequence[SlabResult] | StretchResult | HeadPairResult


def run_task(task: Task) -> Outcome:
    """Measure slabs one after another, pass over a stretch, or measure queries and keys together.

    All with one BLAS thread.
    """
    if isinstance(task, HeadPairTask):
        return measure_head_pair(task)
    if not isinstance(task, StretchTask):
        return run_slab_tasks(task)
    slab, plan = task.task.slab, task.task.plan
    table = stored_table(slab.uri, slab.path, slab.snapshot)
    rows = (task.first, task.stop)
    with one_blas_thread():
        source = SlabRows(slab, *rows)
        found = pass_part(source, table, request_of(plan), rows=rows, exact=task.exact)
    return StretchResult(task, found)


def divide(
    tasks: Sequence[SlabTask], most_bytes: int = STRETCH_BYTES
) -> tuple[list[SlabTask], list[StretchTask]]:
    """Divide tasks over long layers at bounds of sequences.

    Args:
        tasks: The tasks.
        most_bytes: Bytes of rows from which a layer is divided.

    Returns:
        What is left to be done whole, and the stretches.
    """
    whole: list[SlabTask] = []
    stretches: list[StretchTask] = []
    for task in tasks:
        parts = _stretches(task, most_bytes)
        stretches += parts
        if not parts:
            whole.append(task)
            continue
        neighbor = tuple(metric for metric in task.plan.metrics if metric.needs == "neighbors")
        if neighbor:
            whole.append(replace(task, plan=replace(task.plan, metrics=neighbor, populations=())))
    return whole, stretches


def _stretches(task: SlabTask, most_bytes: int) -> list[StretchTask]:
    """Return the stretches of a task, none where it is done whole."""
    slab, plan = task.slab, task.plan
    metrics = moment_metrics(plan)
    wanted = -(-slab_bytes(slab) // most_bytes)
    chosen = any(population.expression is not None for population in plan.populations)
    if wanted < 2 or not metrics or chosen or head_dimension(slab) is not None:
        return []
    part = SlabTask(slab, replace(plan, metrics=metrics, neighbor_populations=()))
    table = stored_table(slab.uri, slab.path, slab.snapshot)
    bounds = request_of(part.plan).bounds(slab.shape[-1], table)
    count = min(wanted, len(bounds) - 1)
    if count < 2:
        return []
    cuts = bounds[np.linspace(0, len(bounds) - 1, count + 1).round().astype(int)].tolist()
    return [StretchTask(part, first, stop, count) for first, stop in itertools.pairwise(cuts)]


class StretchCollector:
    """Puts the stretches of layers together as they come.

    Attributes:
        again: Stretches to be passed over once more, with the median norm of their layer.
    """

    def __init__(self) -> None:
        self._held: dict[Slab, list[PartialPass]] = {}
        self.again: list[StretchTask] = []
        self._done: dict[Slab, list[StretchTask]] = {}

    def add(self, result: StretchResult) -> SlabResult | None:
        """Add a stretch; return the results of its layer if it was the last one."""
        task = result.stretch.task
        held = self._held.setdefault(task.slab, [])
        done = self._done.setdefault(task.slab, [])
        held.append(result.found)
        done.append(result.stretch)
        if len(held) < result.stretch.count:
            return None
        del self._held[task.slab], self._done[task.slab]
        slab = task.slab
        table = stored_table(slab.uri, slab.path, slab.snapshot)
        layer = combine(held, request_of(task.plan), table.sequence)
        if layer is None:
            exact = median_norm(held)
            self.again += [replace(stretch, exact=exact) for stretch in done]
            return None
        with one_blas_thread():
            return SlabResult(task, (finish_moments(SlabRows(slab), layer, table, task.plan),))
