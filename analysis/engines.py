"""Where tasks run: the threads of this process, processes of this machine, or a cluster.

With ``clusters`` the only module that knows Dask. Tasks are few and big, each reads the store by
itself and returns little, and results are handed over one by one as they come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from dask.base import compute
from dask.callbacks import Callback
from dask.delayed import delayed
from distributed import as_completed

from analysis.clusters import check_cluster, connected

Task = TypeVar("Task")
Result = TypeVar("Result")

THREADS: Final = "threads"


def run_tasks(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    on_result: Callable[[Result], None],
    scheduler: str = THREADS,
    *,
    memory: int | None = None,
) -> None:
    """Call a function on every task, and hand every result over in this thread.

    Args:
        function: Called with one task, in whatever process or thread; both must be picklable
            for any scheduler but ``threads``.
        tasks: The tasks.
        on_result: Called with each result as it comes, in no particular order.
        scheduler: ``threads``, ``local`` or ``local:N`` for N processes of this machine,
            ``slurm:FILE`` or ``k8s:FILE`` for jobs of a cluster that the file describes, or the
            address of a Dask scheduler such as ``tcp://host:8786``.
        memory: Bytes that each process of ``local`` may have; its share of the machine by default.

    Raises:
        SchedulerError: If the scheduler is none of these, or cannot be reached.
        Exception: Whatever the function raises; other tasks are then given up.
    """
    if scheduler == THREADS:
        _run_in_threads(function, tasks, on_result)
        return
    with connected(scheduler, memory) as client:
        futures = client.map(function, tasks, pure=False)
        for future, result in as_completed(futures, with_results=True):
            on_result(result)
            future.release()


def check_scheduler(scheduler: str) -> None:
    """Refuse a scheduler whose name cannot be one.

    Raises:
        SchedulerError: If there is no such scheduler, or its file is not one.
    """
    if scheduler != THREADS:
        check_cluster(scheduler)


def _run_in_threads(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    on_result: Callable[[Result], None],
) -> None:
    # Dask starts independent tasks in the falling order of their keys.
    keys = [f"task-{number:09d}" for number in reversed(range(len(tasks)))]
    call = delayed(function, pure=False)
    calls = [call(task, dask_key_name=key) for task, key in zip(tasks, keys, strict=True)]
    wanted = set(keys)

    def collect(key: str, result: Result, *_: object) -> None:
        if key in wanted:
            on_result(result)

    with Callback(posttask=collect):
        compute(*calls, scheduler=THREADS, optimize_graph=False)
