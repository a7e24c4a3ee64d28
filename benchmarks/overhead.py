"""What Prefect and Dask add to computing: the same units, bare, and over Dask in a Prefect task.

    python benchmarks/overhead.py [--json] [--quick] [--workers N]

A unit takes at least half a second of one core, as one layer of one step does. The bare loop is
a thread pool as wide as the cluster, half of it before the rest and half after it, so that a
machine that changes its mind is fair to both. What a cluster and a server cost that are started for
one run is told apart, since it does not grow with the work: a lab's own are there already. Its
workers are set as those of deploy/ are. 200 units take about five minutes on two cores.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import dask
import numpy as np
from distributed import LocalCluster

from analysis.blas import one_blas_thread
from analysis.clusters import MALLOC, PAGES, SAMPLING
from analysis.engines import run_tasks
from benchmarks.figures import Figure, show

UNITS, QUICK_UNITS = 200, 8
LEAST_SECONDS = 0.5
AIM_SECONDS = 0.65
"""What is aimed at, since a machine that was slow when it was asked is faster later."""
ROWS, WIDTH = 2048, 768
BAR = 1.15


def unit(repeats: int) -> float:
    """Do the work of one layer: products of rows, then the spectrum of what they gave."""
    with one_blas_thread():
        rows = np.random.default_rng(0).standard_normal((ROWS, WIDTH), dtype=np.float32)
        gram = np.zeros((WIDTH, WIDTH))
        for _ in range(repeats):
            gram += rows.T @ rows
        return float(np.linalg.eigvalsh(gram)[-1])


def calibrated(width: int) -> int:
    """Return how often the product is repeated for a unit to take as long as it is to.

    Told by the fastest of a few tries with every core at work: what is asked for is a least time.
    """
    unit(1)
    seconds = min(bare(width, 8, width) for _ in range(5))
    return max(1, round(8 * AIM_SECONDS / seconds))


def bare(units: int, repeats: int, width: int) -> float:
    """Return the seconds of a thread pool."""
    started = time.perf_counter()
    with ThreadPoolExecutor(width) as pool:
        list(pool.map(unit, [repeats] * units))
    return time.perf_counter() - started


def over_dask(units: int, repeats: int, scheduler: str) -> float:
    """Return the seconds of the same over Dask."""
    started = time.perf_counter()
    run_tasks(unit, [repeats] * units, lambda _: None, scheduler)
    return time.perf_counter() - started


@contextmanager
def standing(workers: int) -> Iterator[str]:
    """Give the address of a cluster whose workers have done something before."""
    os.environ.update(MALLOC)  # For processes that are started from here on.
    with (
        dask.config.set(SAMPLING),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=PAGES,
            worker_dashboard_address=PAGES,
        ) as cluster,
    ):
        over_dask(4 * workers, 1, cluster.scheduler_address)
        yield cluster.scheduler_address


def within_prefect(work: Callable[[], float]) -> float:
    """Return the seconds of a Prefect flow whose one task does the work.

    The server has run another one before, as a lab's has.
    """
    from prefect import flow
    from prefect.testing.utilities import prefect_test_harness

    from flows.attempts import attempt_each, attempted

    works = [work, lambda: 0.0]

    @attempted("work")
    def once() -> float:
        return works.pop()()

    @flow(persist_result=False)
    def computing() -> None:
        attempt = lambda: once(return_state=True)  # noqa: E731
        attempt_each([("work", attempt)], float, str, time_limit=3600)

    with prefect_test_harness(server_startup_timeout=300):
        computing()
        started = time.perf_counter()
        computing()
        return time.perf_counter() - started


def measure(units: int, workers: int) -> list[Figure]:
    """Measure one after the other."""
    repeats = calibrated(workers)
    say(f"{units} units of {repeats} products each, on {workers} cores")
    start = told("a cluster for one run", lambda: over_dask(workers, 1, f"local:{workers}"))
    alone = told("bare, first half", lambda: bare(units // 2, repeats, workers))
    with standing(workers) as address:
        together = told(
            "Prefect and Dask",
            lambda: within_prefect(lambda: over_dask(units, repeats, address)),
        )
    alone += told("bare, second half", lambda: bare(units - units // 2, repeats, workers))
    against = f"{workers} bare threads"
    # Of a few units, what Prefect does once is most.
    bar = BAR if units >= UNITS else None
    return [
        Figure(f"{units} units, {against}", alone, "s"),
        Figure("seconds of a unit", alone * workers / units, "s", LEAST_SECONDS, "at least"),
        Figure(
            "Prefect and Dask, a cluster that stands",
            together / alone,
            "x",
            bar,
            "at most",
            against,
        ),
        Figure("starting and stopping a cluster for one run", start, "s"),
        Figure(
            "the same with a cluster of its own", (together + start) / alone, "x", against=against
        ),
    ]


def told(what: str, work: Callable[[], float]) -> float:
    """Return the seconds of some work, and say them at once."""
    seconds = work()
    say(f"{what}: {seconds:.1f} s")
    return seconds


def say(sentence: str) -> None:
    """Tell whoever waits; the figures are on standard output."""
    print(sentence, file=sys.stderr, flush=True)


def main() -> int:
    """Measure, print, and return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="few units, so that starts weigh")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="how many")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ.setdefault("PREFECT_HOME", home)
        figures = measure(QUICK_UNITS if arguments.quick else UNITS, arguments.workers)
    show(figures, as_json=arguments.json)
    return int(any(figure.holds is False for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
