"""The unit of distributed work: read some slabs of the store, return their metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from analysis.blas import one_blas_thread
from analysis.budget import HELD_BYTES, check_memory
from analysis.evaluate import measure_layer
from analysis.heads import has_rows, row_sources
from analysis.inputs import CAUSAL
from analysis.plan import Plan, Results, asks_first_alone
from analysis.populations import TokenTable
from store.schema import DIM, HEAD_DIM, TOKEN
from store.slab import Slab, token_table


@dataclass(frozen=True)
class SlabTask:
    """One slab, and what is to be measured of it."""

    slab: Slab
    plan: Plan


@dataclass(frozen=True)
class SlabResult:
    """What was measured of a slab: of each of its heads, of itself where it has none."""

    task: SlabTask
    results: tuple[Results, ...]


def run_slab_tasks(tasks: Sequence[SlabTask]) -> list[SlabResult]:
    """Measure slabs one after another, with one BLAS thread."""
    with one_blas_thread():
        return [_run(task) for task in tasks]


def batch_tasks(tasks: Sequence[SlabTask], least_bytes: int) -> list[list[SlabTask]]:
    """Join consecutive tasks until each batch reads enough for its overhead not to be felt.

    Args:
        tasks: The tasks.
        least_bytes: Bytes (float32 values in memory) that a batch reads at least.
    """
    batches: list[list[SlabTask]] = []
    held = least_bytes
    for task in tasks:
        if held >= least_bytes:
            batches.append([])
            held = 0
        batches[-1].append(task)
        held += slab_bytes(task.slab)
    return batches


def slab_bytes(slab: Slab) -> int:
    """Return the bytes of the values of a slab in memory."""
    return 4 * int(np.prod(slab.shape))


def check_tasks(tasks: Iterable[SlabTask]) -> None:
    """Refuse tasks that need more memory than their plans say a worker has.

    Raises:
        InputError: If one does.
    """
    for task in tasks:
        sizes = dict(zip(task.slab.dims, task.slab.shape, strict=True))
        dim = sizes.get(DIM, sizes.get(HEAD_DIM, 1))
        check_memory(task.plan, dim=dim, n=sizes[TOKEN])


@lru_cache(maxsize=8)
def stored_table(uri: str, path: str, snapshot: str) -> TokenTable:
    """Read what is known about the rows of a stored model, once in this process."""
    tokens = token_table(uri, path, snapshot)
    return TokenTable.from_coordinates(
        special=tokens["special"].values,
        position=tokens["position"].values,
        sequence=tokens["sequence"].values,
        causal=bool(tokens.attrs.get(CAUSAL, False)),
        token_id=tokens["token_id"].values,
    )


def _run(task: SlabTask) -> SlabResult:
    slab = task.slab
    table = stored_table(slab.uri, slab.path, slab.snapshot)
    wanted = has_rows(slab) and asks_first_alone(task.plan, slab.shape[-1])
    hold = wanted and slab_bytes(slab) <= HELD_BYTES
    sources = row_sources(slab, hold=hold)
    return SlabResult(task, tuple(measure_layer(one, table, task.plan) for one in sources))
