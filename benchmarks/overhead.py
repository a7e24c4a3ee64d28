"""What Prefect and Dask add to computing: the same units, bare, over Dask, and in a Prefect task.

    python benchmarks/overhead.py [--json] [--quick] [--dask local:2]

A unit takes at least half a second of one core, as one layer of one step does. The bare loop is
a thread pool as wide as the cluster, half of it before the others and half after them, so that a
machine that changes its mind is fair to all. The cluster is started and stopped within what is
timed. Prefect runs on a server of its own that is started first: what is timed is a flow with one
task, not the start of the server. 200 units take about four minutes on two cores.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from analysis.blas import one_blas_thread
from analysis.engines import run_tasks
from benchmarks.figures import Figure, show

UNITS, QUICK_UNITS = 200, 8
LEAST_SECONDS = 0.5
AIM_SECONDS = 0.6
"""What is aimed at, since a core that is shared is slower than one that is not."""
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


def calibrated() -> int:
    """Return how often the product is repeated for a unit to take as long as it is to."""
    unit(1)
    started = time.perf_counter()
    unit(8)
    return max(1, round(8 * AIM_SECONDS / (time.perf_counter() - started)))


def bare(units: int, repeats: int, width: int) -> float:
    """Return the seconds of a thread pool."""
    started = time.perf_counter()
    with ThreadPoolExecutor(width) as pool:
        list(pool.map(unit, [repeats] * units))
    return time.perf_counter() - started


def over_dask(units: int, repeats: int, scheduler: str) -> float:
    """Return the seconds of the same over Dask, a cluster of our own started and stopped."""
    started = time.perf_counter()
    run_tasks(unit, [repeats] * units, lambda _: None, scheduler)
    return time.perf_counter() - started


def within_prefect(work: Callable[[], float]) -> float:
    """Return the seconds of a Prefect flow whose one task does the work."""
    from prefect import flow
    from prefect.testing.utilities import prefect_test_harness

    from flows.attempts import attempt_each, attempted

    @attempted("work")
    def once() -> float:
        return work()

    @flow(persist_result=False)
    def computing() -> None:
        attempt = lambda: once(return_state=True)  # noqa: E731
        attempt_each([("work", attempt)], float, str, time_limit=3600)

    with prefect_test_harness(server_startup_timeout=300):
        started = time.perf_counter()
        computing()
        return time.perf_counter() - started


def measure(units: int, scheduler: str) -> list[Figure]:
    """Measure the three in turn."""
    name, _, count = scheduler.partition(":")
    width = int(count or os.cpu_count() or 1)
    repeats = calibrated()
    say(f"{units} units of {repeats} products each, on {width} cores")
    alone = told("bare, first half", lambda: bare(units // 2, repeats, width))
    cluster = told(f"Dask {name}", lambda: over_dask(units, repeats, scheduler))
    together = told(
        f"Prefect and Dask {name}",
        lambda: within_prefect(lambda: over_dask(units, repeats, scheduler)),
    )
    alone += told("bare, second half", lambda: bare(units - units // 2, repeats, width))
    against = f"{width} bare threads"
    # Of a few units, starting the cluster is most.
    bar = BAR if units >= UNITS else None
    return [
        Figure(f"{units} units, {against}", alone, "s"),
        Figure("seconds of a unit", alone * width / units, "s", LEAST_SECONDS, "at least"),
        Figure(f"Dask {name}, start and stop included", cluster / alone, "x", against=against),
        Figure(f"Prefect and Dask {name}", together / alone, "x", bar, "at most", against),
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
    parser.add_argument("--dask", default=f"local:{os.cpu_count() or 1}", help="which cluster")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ.setdefault("PREFECT_HOME", home)
        figures = measure(QUICK_UNITS if arguments.quick else UNITS, arguments.dask)
    show(figures, as_json=arguments.json)
    return int(any(figure.holds is False for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
