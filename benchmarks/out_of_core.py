"""The whole table of metrics over a store five times larger than the memory of all workers.

Two worker processes of 1 GB each, width 1,024, values of a bfloat16 model. What each worker takes
above its idle size (just started, before any of our code is loaded) is the peak that the kernel
records; how much of that is code is told apart. The reference for time is a loop of one thread over
chunks of 1 MiB that reads them with Zarr and sums unit vectors with NumPy.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import zarr
from distributed import Client, LocalCluster, Worker

from analysis import METRICS
from analysis.choose import make_plan
from analysis.clusters import MALLOC
from analysis.compute import measure
from analysis.engines import THREADS
from analysis.tasks import SlabTask, run_slab_tasks
from analysis.work import find_work
from benchmarks.figures import Figure
from benchmarks.page_cache import forget
from benchmarks.rates import PATH, activations, prepare, write_layers
from store.repository import Repository
from store.slab import slabs

MEMORY = 1_000_000_000
WORKERS = 2
WIDTH = 1024
LAYERS = 24
COSINE = ("average_cosine",)
MOMENTS = tuple(
    name
    for name, metric in METRICS.items()
    if metric.needs in ("directions", "moments", "spectrum")
)


def measure_out_of_core(*, quick: bool) -> list[Figure]:
    """Measure every figure.

    Args:
        quick: A twentieth of the stores, where no bar is held.
    """
    with tempfile.TemporaryDirectory(dir=os.environ.get("ACTLAS_BENCHMARK_DIR")) as folder:
        free = shutil.disk_usage(folder).free
        if free < 1.2 * WORKERS * MEMORY * 5 / (20 if quick else 1):
            sys.stderr.write(f"out of core: only {free / 1e9:.0f} GB free, left out\n")
            return []
        os.environ.update(MALLOC)
        small = _small(Path(folder, "small"), held=not quick)
        return [*small, *_whole(Path(folder, "large"), held=not quick)]


def _small(place: Path, *, held: bool) -> list[Figure]:
    """What tasks cost beside the reading, over chunks of 1 MiB, and what a second worker brings."""
    layers, chunks = (8, 200) if held else (4, 20)
    values = activations(256 * chunks, WIDTH, seed=0)
    repository = prepare(str(place), WIDTH, len(values), layers, rows=256)
    write_layers(repository, values, layers)
    about = f"{layers * chunks:,} chunks of 1 MiB"
    tiny = _tiny(place.with_name("tiny"))
    run_slab_tasks(tiny)
    loop = _seconds("one thread of Zarr and NumPy", lambda: _loop(repository))
    reading = _seconds("reading alone", lambda: _read(repository))
    forget(place)
    reading_disk = _seconds("reading alone, from the disk", lambda: _read(repository))
    threads = _timed(_copy(place, "threads"), THREADS, COSINE)
    with _cluster(1) as (client, address):
        client.run(run_slab_tasks, tiny)
        alone = _timed(_copy(place, "alone"), address, COSINE)
        one = _timed(_copy(place, "one"), address, MOMENTS)
        forget(place)
        alone_disk = _timed(_copy(place, "alone from the disk"), address, COSINE)
    with _cluster(WORKERS) as (client, address):
        client.run(run_slab_tasks, tiny)
        workers = _timed(_copy(place, "workers"), address, COSINE)
        both = _timed(_copy(place, "both"), address, MOMENTS)
    bar = 0.9 if held else None
    against = f"one thread of Zarr and NumPy, {about}"
    return [
        Figure("average cosine, two workers", workers / loop, "×", bar, "at most", against),
        Figure("average cosine, threads", threads / loop, "×", bar, "at most", against),
        Figure(
            "average cosine, one worker, from the disk",
            alone_disk / reading_disk,
            "×",
            1.3 if held else None,
            "at most",
            f"reading alone, {about}",
        ),
        Figure(
            "the same from the page cache",
            alone / reading,
            "×",
            1.3 if held else None,
            "at most",
            f"reading alone, {about}",
        ),
        Figure(
            "moments, two workers",
            one / both,
            "×",
            1.8 if held else None,
            against=f"one worker, {about}",
        ),
    ]


def _whole(place: Path, *, held: bool) -> list[Figure]:
    """What the whole table takes of two workers."""
    tokens = (WORKERS * MEMORY * 5) // (LAYERS * WIDTH * 4) // (1 if held else 20)
    repository = prepare(str(place), WIDTH, tokens, LAYERS)
    write_layers(repository, activations(tokens, WIDTH, seed=0), LAYERS)
    size = sum(path.stat().st_size for path in Path(place, "chunks").iterdir())
    gigabytes = LAYERS * tokens * WIDTH * 4 / 1e9
    sys.stderr.write(f"{gigabytes:.1f} GB stored as {size / 1e9:.1f}\n")
    with _cluster(WORKERS) as (client, address):
        idle = _peaks(client)
        client.run(run_slab_tasks, _tiny(place.with_name("idle")))
        code = max(_peaks(client)[name] - idle[name] for name in idle)
        whole = _timed(place, address, None)
        above = max(_peaks(client)[name] - idle[name] for name in idle)
        spilled = sum(client.run(_spilled).values())
    about = f"{WORKERS} workers, width {WIDTH}, {gigabytes:.1f} GB"
    bar = 350 if held else None
    return [
        Figure("memory above idle", above / 2**20, "MiB", bar, "at most", about),
        Figure("of which code that is loaded", code / 2**20, "MiB", against=about),
        Figure("values spilled", spilled, "values", 0, "at most", about),
        Figure("every metric: wall time", whole, "s", against=about),
    ]


def _tiny(place: Path) -> list[SlabTask]:
    """Return what measures a small layer: it loads all code, and takes no memory."""
    values = activations(512, WIDTH // 16, seed=0)
    repository = prepare(str(place), WIDTH // 16, len(values), 2)
    write_layers(repository, values, 2)
    plan = make_plan(None, None, labelled=True)
    snapshot = repository.snapshot_id()
    work = find_work(repository, PATH, snapshot, plan, site="residual", steps=None, layers=None)
    return work.tasks[:1]


@contextmanager
def _cluster(workers: int) -> Iterator[tuple[Client, str]]:
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=MEMORY,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(workers)
        yield client, cluster.scheduler_address


def _copy(place: Path, name: str) -> Path:
    """Return a copy of a store, nothing of which is measured yet."""
    copied = place.with_name(f"{place.name}-{name}")
    # Files of a store are replaced, never changed.
    shutil.copytree(place, copied, copy_function=os.link)
    return copied


def _loop(repository: Repository) -> None:
    group = repository.read()[PATH]
    array = group["residual"]
    assert isinstance(array, zarr.Array)
    rows = array.chunks[2]
    for layer in range(array.shape[1]):
        total = np.zeros(array.shape[3])
        for start in range(0, array.shape[2], rows):
            block = np.asarray(array[0, layer, start : start + rows])
            norms = np.sqrt(np.einsum("td,td->t", block, block))
            total += np.einsum("td,t->d", block, 1 / norms)


def _read(repository: Repository) -> None:
    for slab in slabs(repository, PATH):
        for _ in slab.blocks():
            pass


def _timed(place: Path, scheduler: str, metrics: Sequence[str] | None) -> float:
    what = "every metric" if metrics is None else f"{len(metrics)} metrics"
    return _seconds(
        f"{what}, {place.name}",
        lambda: measure(str(place), PATH, metrics=metrics, scheduler=scheduler, memory=MEMORY),
    )


def _seconds(name: str, work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    seconds = time.perf_counter() - started
    sys.stderr.write(f"{name}: {seconds:.3g} s\n")
    return seconds


def _peaks(client: Client) -> dict[str, int]:
    """Return the most memory that each worker has had: of itself, not of what started it."""
    return client.run(_peak)


def _peak() -> int:
    """Return the most memory that this process has had."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    found = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return 1024 * int(found.split()[1])


def _spilled(dask_worker: Worker) -> int:
    """Return how many values a worker, which Dask hands over, holds on disk."""
    return len(getattr(dask_worker.data, "disk", ()))
