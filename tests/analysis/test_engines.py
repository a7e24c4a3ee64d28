"""Where tasks run: results and errors are the same, memory is kept, BLAS is limited."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import dask
import numpy as np
import pytest
from distributed import LocalCluster
from threadpoolctl import threadpool_info

from analysis.blas import one_blas_thread
from analysis.choose import make_plan
from analysis.clusters import MALLOC, SAMPLING, dask_report
from analysis.compute import measure
from analysis.engines import check_scheduler, run_tasks
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

    def ask(_: int) -> tuple[dict[str, str | None], list[int], dict[str, str]]:
        import os

        np.eye(2) @ np.eye(2)
        with one_blas_thread():
            pools = [pool["num_threads"] for pool in threadpool_info()]
        sampling = {name: dask.config.get(name) for name in SAMPLING}
        return {name: os.environ.get(name) for name in MALLOC}, pools, sampling

    found: list[tuple[dict[str, str | None], list[int], dict[str, str]]] = []
    run_tasks(ask, [1], found.append, "local:1")
    ((environment, pools, sampling),) = found
    assert sampling == SAMPLING
    assert environment == MALLOC
    assert set(pools) == {1}


def test_processes_give_what_threads_give(
    tmp_path: Path, make_stored: Callable, caplog: pytest.LogCaptureFixture
) -> None:
    found = []
    caplog.set_level("INFO", "actlas.dask")
    page = tmp_path / "dask.html"
    for scheduler in ("threads", "local:2"):
        stored = make_stored(str(tmp_path / scheduler.replace(":", "-")))
        names = ["average_cosine", "svd_anisotropy", "two_nn"]
        with dask_report(page):
            measure(stored.repository, stored.path, metrics=names, scheduler=scheduler, sample=200)
        assert page.exists() == (scheduler != "threads")
        results = read_metrics(stored.repository, stored.path)
        assert results is not None
        found.append(results.load())
    threads, processes = found
    for name in threads.data_vars:
        np.testing.assert_allclose(threads[name], processes[name], rtol=1e-12, err_msg=str(name))
    assert "Dask shows its work at http://127.0.0.1:" in caplog.text
    # Dask's report of it, which fetches nothing from elsewhere.
    assert "run_task" in page.read_text()
    assert "cdn.bokeh.org" not in page.read_text()


def test_work_is_done_even_if_no_report_of_it_can_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found: list[int] = []
    (tmp_path / "file").touch()
    with (
        LocalCluster(1, processes=False, threads_per_worker=1, dashboard_address=None) as cluster,
        dask_report(tmp_path / "file" / "page.html"),
    ):
        run_tasks(square, [3], found.append, cluster.scheduler_address)
    assert found == [9]
    assert "no report of Dask in" in caplog.text


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


CLUSTER = "cluster: {cores: 1, memory: 1GB}\njobs: {minimum: 0, maximum: 2}\n"


@pytest.fixture
def cluster_file(tmp_path: Path) -> Path:
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER)
    return file


@pytest.mark.parametrize(
    "text", ["[", "jobs: {}", CLUSTER + "more: 1\n", CLUSTER.replace("2", "-1")]
)
def test_a_cluster_file_says_what_it_must_hold(cluster_file: Path, text: str) -> None:
    cluster_file.write_text(text)
    with pytest.raises(SchedulerError, match=r"cluster file .*cluster\.yaml' (must hold|cannot)"):
        check_scheduler(f"slurm:{cluster_file}")


def test_a_cluster_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SchedulerError, match=r"No such file .*one to start from"):
        check_scheduler(f"k8s:{tmp_path / 'none.yaml'}")


@pytest.mark.parametrize(
    ("kind", "module"), [("slurm", "dask_jobqueue"), ("k8s", "dask_kubernetes")]
)
def test_a_missing_package_is_said_how_to_install(
    cluster_file: Path, monkeypatch: pytest.MonkeyPatch, kind: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SchedulerError, match=rf"pip install 'actlas\[{kind}\]'"):
        run_tasks(square, [1], lambda _: None, f"{kind}:{cluster_file}")


# A SLURMCluster that failed to start warns when it is collected.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_argument_that_the_cluster_does_not_know_is_named(cluster_file: Path) -> None:
    pytest.importorskip("dask_jobqueue")
    cluster_file.write_text(CLUSTER.replace("cores", "corse"))
    with pytest.raises(SchedulerError, match=r"(?s)could not be started: .*check what its file"):
        run_tasks(square, [1], lambda _: None, f"slurm:{cluster_file}")
    gc.collect()


def test_kubernetes_is_scaled_as_the_file_says(
    cluster_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    class KubeCluster(LocalCluster):
        def __init__(self, **arguments: object) -> None:
            asked.append(arguments)
            super().__init__(
                n_workers=1,
                processes=False,
                protocol="inproc://",
                dashboard_address="127.0.0.1:0",
                worker_dashboard_address="127.0.0.1:0",
            )

        def adapt(self, **bounds: object) -> None:  # type: ignore[override]
            asked.append(bounds)

    for name in ("dask_kubernetes", "dask_kubernetes.operator"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(
        sys.modules["dask_kubernetes.operator"], "KubeCluster", KubeCluster, raising=False
    )
    found: list[int] = []
    run_tasks(square, [1, 2, 3], found.append, f"k8s:{cluster_file}")
    assert sorted(found) == [1, 4, 9]
    assert asked == [{"cores": 1, "memory": "1GB"}, {"minimum": 0, "maximum": 2}]
