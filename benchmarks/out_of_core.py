"""The whole table of metrics over a store five times larger than the memory of all workers.

Two worker processes of 1 GB each, width 1,024, values of a bfloat16 model. What each worker takes
above its idle size is the peak that the kernel records; the reference for time is one thread that
reads the same chunks with Zarr and sums them with NumPy.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from distributed import Client, LocalCluster, get_worker

from analysis.clusters import MALLOC
from analysis.compute import measure
from benchmarks.figures import Figure
from benchmarks.rates import PATH, activations, prepare, write_layers
from store.repository import Repository
from store.slab import slabs

MEMORY = 1_000_000_000
WORKERS = 2
WIDTH = 1024
LAYERS = 24
COSINE = ("average_cosine",)


def measure_out_of_core(*, quick: bool) -> list[Figure]:
    """Measure every figure.

    Args:
        quick: A twentieth of the store, where no bar is held.
    """
    tokens = (WORKERS * MEMORY * 5) // (LAYERS * WIDTH * 4) // (20 if quick else 1)
    with tempfile.TemporaryDirectory(dir=os.environ.get("ACTLAS_BENCHMARK_DIR")) as folder:
        free = shutil.disk_usage(folder).free
        if free < 1.2 * LAYERS * tokens * WIDTH * 4:
            sys.stderr.write(f"out of core: only {free / 1e9:.0f} GB free, left out\n")
            return []
        repository = prepare(folder, WIDTH, tokens, LAYERS)
        write_layers(repository, activations(tokens, WIDTH, seed=0), LAYERS)
        size = sum(path.stat().st_size for path in Path(folder, "chunks").iterdir())
        loop = _loop(repository)
        figures = _cluster(folder, held=not quick, loop=loop)
        about = f"{size / 1e9:.1f} GB on disk, {LAYERS * tokens * WIDTH * 4 / 1e9:.1f} in memory"
    return [*figures, Figure("one thread, reading and adding", loop, "s", against=about)]


def _loop(repository: Repository) -> float:
    started = time.perf_counter()
    for slab in slabs(repository, PATH):
        total = np.zeros(WIDTH)
        for _, rows in slab.blocks():
            total += rows.sum(axis=0, dtype=np.float64)
    return time.perf_counter() - started


def _cluster(folder: str, *, held: bool, loop: float) -> list[Figure]:
    os.environ.update(MALLOC)
    figures = []
    with (
        LocalCluster(
            n_workers=WORKERS,
            threads_per_worker=1,
            memory_limit=MEMORY,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(WORKERS)
        idle = _peaks(client)
        address = cluster.scheduler_address
        reading = _timed(folder, address, COSINE)
        whole = _timed(folder, address, None)
        above = max(_peaks(client)[name] - idle[name] for name in idle)
        spilled = sum(client.run(_spilled).values())
        about = f"{WORKERS} workers, width {WIDTH}"
        figures += [
            Figure(
                "memory above idle", above / 2**20, "MiB", 350 if held else None, "at most", about
            ),
            Figure("values spilled", spilled, "values", 0, "at most", about),
            Figure("average cosine: wall time", reading, "s", against=about),
            Figure(
                "average cosine: wall time",
                reading / loop,
                "loops",
                0.9 if held else None,
                "at most",
                "one thread of Zarr and NumPy",
            ),
            Figure("every metric: wall time", whole, "s", against=about),
        ]
    return figures


def _timed(folder: str, address: str, metrics: Sequence[str] | None) -> float:
    started = time.perf_counter()
    measure(folder, PATH, metrics=metrics, scheduler=address, memory=MEMORY)
    return time.perf_counter() - started


def _peaks(client: Client) -> dict[str, int]:
    return client.run(lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def _spilled() -> int:
    """Return how many values this worker holds on disk."""
    return len(getattr(get_worker().data, "disk", ()))
