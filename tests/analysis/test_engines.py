"""Where tasks run: results and errors are the same, memory is kept, BLAS is limited."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import dask
import numpy as np
import pytest
from threadpoolctl import threadpool_info

from analysis.blas import one_blas_thread
from analysis.choose import make_plan
from analysis.compute import measure
from analysis.engines import MALLOC, check_scheduler, run_tasks
from analysis.errors import SchedulerError
from analysis.tasks import batch_tasks, slab_bytes
from analysis.work import find_work
from store.metrics import read_metrics


def square(number: int) -> int:
    if number == 13:
        raise ValueError("thirteen")
    return number * number


def test_threads_hand_over_every_result() -> None:
    found: list[int] = []
    run_tasks(square, range(10), found.append)
    assert sorted(found) == [number**2 for number in range(10)]


def test_an_error_comes_through() -> None:
    with pytest.raises(ValueError, match="thirteen"):
        run_tasks(square, [1, 13], lambda _: None)


@pytest.mark.parametrize("name", ["thread", "local:", "local:x", "local:0", "localhost:8786", ""])
def test_an_unknown_scheduler_is_refused(name: str) -> None:
    with pytest.raises(SchedulerError, match=r"expected 'threads', 'local', 'local:N'"):
        check_scheduler(name)


@pytest.mark.parametrize(
    "name", ["threads", "local", "local:3", "tcp://10.0.0.1:8786", "tls://h:1"]
)
def test_schedulers_are_known_by_name(name: str) -> None:
    check_scheduler(name)


def test_a_scheduler_that_does_not_answer_is_said_to() -> None:
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "200ms"}),
        pytest.raises(SchedulerError, match=r"at tcp://127\.0\.0\.1:9 does not answer"),
    ):
        run_tasks(square, [1], lambda _: None, "tcp://127.0.0.1:9")


def test_workers_of_our_own_keep_freed_memory_and_use_one_blas_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)

    def ask(_: int) -> tuple[dict[str, str | None], list[int]]:
        import os

        np.eye(2) @ np.eye(2)
        with one_blas_thread():
            pools = [pool["num_threads"] for pool in threadpool_info()]
        return {name: os.environ.get(name) for name in MALLOC}, pools

    found: list[tuple[dict[str, str | None], list[int]]] = []
    run_tasks(ask, [1], found.append, "local:1")
    ((environment, pools),) = found
    assert environment == MALLOC
    assert set(pools) == {1}


def test_processes_give_what_threads_give(tmp_path: Path, make_stored: Callable) -> None:
    found = []
    for scheduler in ("threads", "local:2"):
        stored = make_stored(str(tmp_path / scheduler.replace(":", "-")))
        names = ["average_cosine", "svd_anisotropy", "two_nn"]
        measure(stored.repository, stored.path, metrics=names, scheduler=scheduler, sample=200)
        results = read_metrics(stored.repository, stored.path)
        assert results is not None
        found.append(results.load())
    threads, processes = found
    for name in threads.data_vars:
        np.testing.assert_allclose(threads[name], processes[name], rtol=1e-12, err_msg=str(name))


def test_batches_read_enough_and_keep_the_order(stored) -> None:
    plan = make_plan(["average_cosine"], None, labelled=True)
    snapshot = stored.repository.snapshot_id()
    work = find_work(
        stored.repository, stored.path, snapshot, plan, site="residual", steps=None, layers=None
    )
    bytes_each = slab_bytes(work.tasks[0].slab)
    batches = batch_tasks(work.tasks, 2 * bytes_each)
    assert [len(batch) for batch in batches] == [2, 2, 2]
    assert [task for batch in batches for task in batch] == work.tasks
    assert [len(batch) for batch in batch_tasks(work.tasks, 1)] == [1] * 6
