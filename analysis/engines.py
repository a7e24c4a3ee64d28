"""Where tasks run: the threads of this process, processes of this machine, or a cluster.

The only module that knows Dask. Tasks are few and big, each reads the store by itself and
returns little, and results are handed over one by one as they come.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from dask.base import compute
from dask.callbacks import Callback
from dask.delayed import delayed
from distributed import Client, LocalCluster, as_completed

from analysis.errors import SchedulerError

Task = TypeVar("Task")
Result = TypeVar("Result")

THREADS: Final = "threads"
LOCAL: Final = "local"
_PROTOCOLS: Final = ("tcp://", "tls://", "ws://", "wss://", "ucx://", "inproc://")

MALLOC: Final = {
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
}
"""What the workers of our own clusters keep of freed memory.

Dask sets the first to 64 KiB, so that every buffer of the size of a chunk is given back and
faulted in anew: tasks that stream chunks take 2.1 to 2.7 times as long, measured.
"""


def run_tasks(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    on_result: Callable[[Result], None],
    scheduler: str = THREADS,
) -> None:
    """Call a function on every task, and hand every result over in this thread.

    Args:
        function: Called with one task, in whatever process or thread; both must be picklable
            for any scheduler but ``threads``.
        tasks: The tasks.
        on_result: Called with each result as it comes, in no particular order.
        scheduler: ``threads``, ``local`` or ``local:N`` for N processes of this machine, or the
            address of a Dask scheduler such as ``tcp://host:8786``.

    Raises:
        SchedulerError: If the scheduler is none of these, or cannot be reached.
        Exception: Whatever the function raises; other tasks are then given up.
    """
    if scheduler == THREADS:
        _run_in_threads(function, tasks, on_result)
        return
    with _client(scheduler) as client:
        futures = client.map(function, tasks, pure=False)
        for future, result in as_completed(futures, with_results=True):
            on_result(result)
            future.release()


def check_scheduler(scheduler: str) -> None:
    """Refuse a scheduler whose name cannot be one.

    Raises:
        SchedulerError: If it is neither ``threads``, ``local[:N]`` nor an address.
    """
    name, _, count = scheduler.partition(":")
    local = name == LOCAL and (count.isdigit() and int(count) > 0 if ":" in scheduler else True)
    if not (scheduler == THREADS or local or scheduler.startswith(_PROTOCOLS)):
        raise SchedulerError(
            f"no scheduler is called {scheduler!r}; expected 'threads', 'local', 'local:N' with"
            " N processes, or the address of a Dask scheduler such as 'tcp://host:8786'"
        )


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


@contextmanager
def _client(scheduler: str) -> Iterator[Client]:
    check_scheduler(scheduler)
    if not scheduler.startswith(LOCAL):
        try:
            client = Client(scheduler)
        except (OSError, ValueError) as error:
            raise SchedulerError(
                f"the Dask scheduler at {scheduler} does not answer ({error}); start one with"
                " 'dask scheduler', or use 'threads'"
            ) from error
        with client:
            yield client
        return
    count = int(scheduler.partition(":")[2] or os.cpu_count() or 1)
    with (
        _environment(MALLOC),
        LocalCluster(
            n_workers=count, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables that processes started meanwhile inherit.

    Dask takes its own defaults only for variables that are not set, and leaves them behind in
    the environment of this process once it has started a worker.
    """
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
