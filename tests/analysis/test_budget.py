"""Memory that is stated is kept to, and what cannot be is refused before anything is read."""

from __future__ import annotations

import tracemalloc

import pytest

from analysis.budget import IDLE_BYTES, check_memory, needed_bytes
from analysis.choose import make_plan
from analysis.compute import measure
from analysis.errors import InputError
from analysis.tasks import run_slab_tasks
from analysis.work import find_work
from store.metrics import read_metrics

WIDTH = 64


def test_a_store_five_times_the_memory_is_measured_within_it(make_stored, memory_uri) -> None:
    tokens = 20_000
    stored = make_stored(
        memory_uri, n_sequences=tokens // 25, n_layers=13, width=WIDTH, chunk_rows=4096
    )
    snapshot = stored.repository.snapshot_id()
    plan = make_plan(None, None, labelled=True, sample=500, memory=IDLE_BYTES + (12 << 20))
    needed = needed_bytes(plan, dim=WIDTH, n=tokens)
    check_memory(plan, dim=WIDTH, n=tokens)
    size = 4 * 13 * tokens * WIDTH
    assert size > 5 * needed
    options = {"site": "residual", "steps": None, "layers": None}
    work = find_work(stored.repository, stored.path, snapshot, plan, **options)
    run_slab_tasks(work.tasks[:1])  # opens the store, and compiles
    tracemalloc.start()
    run_slab_tasks(work.tasks[1:4])  # what one task leaves behind, the next would show
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < needed


def test_what_needs_more_is_refused_and_nothing_is_stored(stored) -> None:
    with pytest.raises(InputError, match=r"takes up to .* the memory stated is 1 MiB"):
        measure(stored.repository, stored.path, metrics=["svd_anisotropy"], memory=1 << 20)
    assert read_metrics(stored.repository, stored.path) is None


def test_wider_rows_and_more_of_them_need_more() -> None:
    plan = make_plan(None, None, labelled=True)
    little = needed_bytes(plan, dim=512, n=10_000)
    assert needed_bytes(plan, dim=1024, n=10_000) > little
    assert needed_bytes(plan, dim=512, n=1_000_000) > little
