"""Dask clusters: processes of this machine, a scheduler that runs, or jobs of a queue.

A cluster that is started here is stopped when the work is done.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final, Protocol, Self

import dask
import yaml
from distributed import Client, LocalCluster, performance_report
from distributed.security import Security

from analysis.errors import SchedulerError, UnknownSchedulerError
from store.freed_memory import ENVIRONMENT

LOCAL: Final = "local"
SLURM: Final = "slurm:"
KUBERNETES: Final = "k8s:"
_PROTOCOLS: Final = ("tcp://", "tls://", "ws://", "wss://", "ucx://", "inproc://")

_LOG: Final = logging.getLogger("actlas.dask")
_REPORT: Final[ContextVar[Path | None]] = ContextVar("report of Dask", default=None)

PAGES: Final = "127.0.0.1:0"
"""Where the schedulers and workers of our own clusters show their pages: on this machine alone."""

MALLOC: Final = ENVIRONMENT
"""What the workers of our own clusters keep of freed memory.

Dask sets the first to 64 KiB, so that every buffer of the size of a chunk is given back and
faulted in anew: tasks that stream chunks take 2.1 to 2.7 times as long, measured.
"""

SAMPLING: Final = {"distributed.worker.profile.interval": "100ms"}
"""How often workers of our own clusters note where they are, for the pages of Dask.

At Dask's ten milliseconds tasks of half a second take 4 % more CPU, measured.
"""


@dataclass(frozen=True)
class Jobs:
    """A cluster of jobs, as a file describes it.

    Attributes:
        cluster: Arguments of the cluster.
        minimum: Jobs there are at any time.
        maximum: Jobs there are at most.
    """

    cluster: Mapping[str, object]
    minimum: int
    maximum: int

    @classmethod
    def read(cls, path: str) -> Jobs:
        """Read ``{cluster: {…}, jobs: {minimum: …, maximum: …}}`` from a YAML file.

        Raises:
            UnknownSchedulerError: If the file is not there, or says something else.
        """
        try:
            found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeError, yaml.YAMLError) as error:
            raise UnknownSchedulerError(
                f"the cluster file {path!r} cannot be read ({error}); deploy/slurm/jobqueue.yaml is"
                " one to start from"
            ) from error
        match found:
            case {
                "cluster": dict(cluster),
                "jobs": {"minimum": int(least), "maximum": int(most), **unknown},
                **more,
            } if 0 <= least <= most > 0 and not unknown and not more:
                return cls(cluster, least, most)
        raise UnknownSchedulerError(
            f"the cluster file {path!r} must hold 'cluster', arguments of the cluster, and 'jobs',"
            f" with 'minimum' and 'maximum', 0 ≤ minimum ≤ maximum, and nothing else; got {found!r}"
        )


class _Adaptive(Protocol):
    """What clusters of dask-jobqueue and dask-kubernetes have in common."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *reason: object) -> object: ...

    def adapt(self, **bounds: int) -> object: ...


def check_cluster(scheduler: str) -> None:
    """Refuse a scheduler whose name cannot be one.

    Raises:
        UnknownSchedulerError: If it is neither ``local[:N]``, ``slurm:FILE``, ``k8s:FILE`` nor an
            address, or its file is not one.
    """
    name, _, count = scheduler.partition(":")
    if scheduler.startswith((SLURM, KUBERNETES)):
        Jobs.read(count)
        return
    local = name == LOCAL and (count.isdigit() and int(count) > 0 if ":" in scheduler else True)
    if not (local or scheduler.startswith(_PROTOCOLS)):
        raise UnknownSchedulerError(
            f"no scheduler is called {scheduler!r}; expected 'threads', 'local', 'local:N' with"
            " N processes, 'slurm:FILE' or 'k8s:FILE' with the file of a cluster, or the address"
            " of a Dask scheduler such as 'tcp://host:8786'"
        )


@contextmanager
def connected(scheduler: str, memory: int | None = None) -> Iterator[Client]:
    """Connect to a scheduler, or start a cluster for as long as it is used.

    Args:
        scheduler: ``local``, ``local:N``, ``slurm:FILE``, ``k8s:FILE``, or an address.
        memory: Bytes that each process of ``local`` may have; its share of the machine by default.

    Raises:
        SchedulerError: If there is no such scheduler, or it cannot be reached or started.
    """
    check_cluster(scheduler)
    with _client(scheduler, memory) as client, _reported(client):
        yield client


@contextmanager
def dask_report(page: Path) -> Iterator[None]:
    """Have Dask describe what a cluster does within: tasks over time, transfers, memory, workers.

    Where several clusters are used, the page is about the last. Threads have none.

    Args:
        page: An HTML file, written over; it needs no network.
    """
    before = _REPORT.set(page)
    try:
        yield
    finally:
        _REPORT.reset(before)


@contextmanager
def _reported(client: Client) -> Iterator[None]:
    """Say where the cluster shows its work, and write the report of it where one is wanted."""
    _LOG.info("Dask shows its work at %s", client.dashboard_link)
    page = _REPORT.get()
    if page is None:
        yield
        return
    # The page comes with all that it needs, instead of fetching it from elsewhere.
    report = performance_report(filename=str(page), mode="inline")
    report.__enter__()
    try:
        yield
    finally:
        try:
            report.__exit__(None, None, None)
        except Exception as error:  # noqa: BLE001  # the work is done, with or without a page
            _LOG.warning("no report of Dask in %s: %s", page, error)


@contextmanager
def _client(scheduler: str, memory: int | None) -> Iterator[Client]:
    kind, _, rest = scheduler.partition(":")
    if kind == LOCAL:
        yield from _local(int(rest or os.cpu_count() or 1), memory)
    elif scheduler.startswith(SLURM):
        yield from _of_jobs(Jobs.read(rest), _slurm)
    elif scheduler.startswith(KUBERNETES):
        yield from _of_jobs(Jobs.read(rest), _kubernetes)
    else:
        with _reached(scheduler) as client:
            yield client


def _reached(scheduler: str) -> Client:
    try:
        return Client(scheduler)
    except (OSError, ValueError) as error:
        raise SchedulerError(
            f"the Dask scheduler at {scheduler} does not answer ({error}); start one with"
            " 'dask scheduler', or use 'threads'"
        ) from error


def _local(count: int, memory: int | None) -> Iterator[Client]:
    with (
        _environment(MALLOC),
        dask.config.set(SAMPLING),
        _warnings_alone("distributed", "bokeh"),
        LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            memory_limit=memory or "auto",
            host="127.0.0.1",
            # Without an address Dask would open its pages to the network, at a port of its choice.
            dashboard_address=PAGES,
            worker_dashboard_address=PAGES,
            # Whoever may connect may run code: other users of this machine may not.
            protocol="tls://",
            security=Security.temporary(),
            silence_logs=False,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def _of_jobs(jobs: Jobs, start: Callable[[Jobs], _Adaptive]) -> Iterator[Client]:
    try:
        cluster = start(jobs)
    except (TypeError, ValueError, OSError, RuntimeError) as error:
        raise SchedulerError(
            f"the cluster could not be started: {error}; check what its file gives as 'cluster'"
        ) from error
    with cluster, Client(cluster) as client:
        yield client


def _slurm(jobs: Jobs) -> _Adaptive:
    cluster: _Adaptive = _module("dask_jobqueue", "slurm").SLURMCluster(**jobs.cluster)
    cluster.adapt(minimum_jobs=jobs.minimum, maximum_jobs=jobs.maximum)
    return cluster


def _kubernetes(jobs: Jobs) -> _Adaptive:
    cluster: _Adaptive = _module("dask_kubernetes.operator", "k8s").KubeCluster(**jobs.cluster)
    cluster.adapt(minimum=jobs.minimum, maximum=jobs.maximum)
    return cluster


def _module(name: str, extra: str) -> ModuleType:
    """Import what only a cluster of one kind needs.

    Raises:
        SchedulerError: If it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0].replace("_", "-")
        raise SchedulerError(
            f"'{extra}:FILE' needs {package}, which is not installed: pip install 'actlas[{extra}]'"
        ) from error


@contextmanager
def _warnings_alone(*names: str) -> Iterator[None]:
    """Let some loggers pass on warnings and worse alone.

    Dask would raise the level of their handlers instead. Where Bokeh took over those of the root,
    the records of everybody else were lost with it for as long as a cluster stood.
    """
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(max(logger.level, logging.WARNING))
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


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
