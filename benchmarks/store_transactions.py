"""Committing and opening, as steps and writers become many, and writers that are killed."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import multiprocessing.process
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np

from benchmarks.activations import PATH, prepare, store_step, synthetic
from benchmarks.figures import Figure
from store.arrays import member
from store.cells import write_cells
from store.layout import fill_value
from store.repository import Repository
from store.schema import STEP, STEP_COORDINATES

SMALL = (4, 64, 256)
"""A model whose chunks of 4 KiB are small and objects of their own."""


def measure(*, quick: bool) -> list[Figure]:
    """Measure commits, opening, concurrent writers and kills."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        place = Path(folder)
        return [
            *_commits(place / "commits", steps=60 if quick else 1000),
            *_opening(place / "opening", quick=quick),
            *_writers(place / "writers", each=8 if quick else 60),
            *_kills(place / "kills", number=8 if quick else 50),
        ]


def _commits(place: Path, *, steps: int) -> list[Figure]:
    """Time commits at 33 layers × 16 chunks, when few and when many steps are there."""
    shape = (33, 64, 256)
    repository = prepare(place, shape, step_capacity=steps + 20, facts={"chunk_rows": 4})
    values = synthetic(*shape, dtype="float32")
    first = _commit_seconds(repository, values, range(10))
    # What lies between is the same as far as manifests go: every slot, every chunk.
    for step in range(10, steps):
        with (
            mock.patch("store.repository.sync_filesystem"),
            mock.patch("store.durable.sync_filesystem"),
        ):
            store_step(repository, step, values)
    last = _commit_seconds(repository, values, range(steps, steps + 10))
    return [
        Figure("commit before the disk sync, step 5", 1e3 * first, "ms", 10, "at most"),
        Figure(f"commit, step {steps}", last / first, "x", 1.5, "at most", "step 5"),
    ]


def _commit_seconds(repository: Repository, values: np.ndarray, steps: range) -> float:
    commit = Repository._commit_on_disk
    seconds: list[float] = []

    def timed(self: Repository, *arguments: object, rebase: bool) -> str:
        started = time.perf_counter()
        snapshot = commit(self, *arguments, rebase=rebase)  # type: ignore[arg-type]
        if rebase:  # A step's own commit, not its reservation.
            seconds.append(time.perf_counter() - started)
        return snapshot

    with (
        mock.patch("store.repository.sync_filesystem"),
        mock.patch("store.durable.sync_filesystem"),
        mock.patch("store.durable._sync_directory"),
        mock.patch.object(Repository, "_commit_on_disk", timed),
    ):
        for step in steps:
            store_step(repository, step, values)
    return statistics.median(seconds)


def _opening(place: Path, *, quick: bool) -> list[Figure]:
    models, steps = (5, 50) if quick else (20, 150)
    shapes = {
        "one": (1, steps, 13, 0.2),
        "many": (models, steps, 13, 1.0),
        "long": (1, 300 if quick else 1000, 33, 0.5),
    }
    figures = []
    for name, (n_models, n_steps, layers, bar) in shapes.items():
        for number in range(n_models):
            fill_blank(place / name, f"model-{number}", n_steps, layers)
        seconds, mib = _open_in_new_process(place / name)
        label = f"opening {n_models} model(s) × {n_steps} steps × {layers} layers"
        figures.append(Figure(label, seconds, "s", bar, "at most"))
        figures.append(Figure(f"memory of {label}", mib, "MiB", 50, "at most"))
    return figures


def fill_blank(place: Path, model: str, steps: int, layers: int) -> None:
    """Create a model with complete steps that hold nothing: opening reads labels alone."""
    repository = prepare(place, (layers, 64, 16), model=model, step_capacity=steps)
    blank = {name: fill_value(item) for name, item in STEP_COORDINATES.items()}

    def change(root: object) -> None:
        group = root[f"corpus/{model}"]  # type: ignore[index]
        for slot in range(steps):
            write_cells(group, slot, {**blank, STEP: slot, "complete": True, "sites": "residual"})
        member(group, "residual_checksum")[:] = 1

    repository.update("fill", change)


_OPENING = """
import sys, time
import dask.array, psutil
from store import open_store
def mib(): return psutil.Process().memory_info().rss / 2**20
before, started = mib(), time.perf_counter()
tree = open_store(sys.argv[1])
print(time.perf_counter() - started, mib() - before)
"""


def _open_in_new_process(place: Path) -> tuple[float, float]:
    runs = [
        subprocess.run(
            [sys.executable, "-c", _OPENING, str(place.resolve())],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[1],
        ).stdout.split()
        for _ in range(3)
    ]
    return min(float(run[0]) for run in runs), min(float(run[1]) for run in runs)


def _ingest(lines: multiprocessing.connection.Connection, place: Path, steps: list[int]) -> None:
    repository = Repository.open(place)
    values = synthetic(*SMALL, dtype="float32")
    for step in steps:
        store_step(repository, step, values)
        lines.send(step)


def _start(
    place: Path, steps: list[int]
) -> tuple[multiprocessing.Process, Callable[[], list[int]]]:
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.store_transactions"])
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_ingest, args=(theirs, place, steps))
    process.start()
    theirs.close()

    def acknowledged() -> list[int]:
        received: list[int] = []
        try:
            while True:
                received.append(ours.recv())
        except (EOFError, OSError):
            process.join()
            return received

    return process, acknowledged


def _complete(place: Path) -> tuple[list[int], int]:
    """Return the complete steps, and how many others show any value."""
    group = Repository.open(place).read()[PATH]
    steps, complete = group["step"][:], group["complete"][:]  # type: ignore[index]
    half = sum(
        bool(np.isfinite(group["residual"][int(slot)]).any())  # type: ignore[index]
        for slot in np.flatnonzero(~complete)[:20]
    )
    return [int(step) for step in steps[complete]], half


def _writers(place: Path, *, each: int) -> list[Figure]:
    prepare(place, SMALL, facts={"chunk_rows": 4})
    firsts = range(0, 4 * each, each)
    started = [_start(place, list(range(first, first + each))) for first in firsts]
    acknowledged = [step for _, collect in started for step in collect()]
    complete, _ = _complete(place)
    chunks = [path.stat().st_size for path in (place / "chunks").rglob("*") if path.is_file()]
    useful = sum(Repository.open(place).read()[PATH]["stored_bytes"][:])  # type: ignore[index]
    amplification = float(sum(chunks) / useful)
    lost = len(set(acknowledged) - set(complete)) + 4 * each - len(acknowledged)
    return [
        Figure("write amplification of 4 writers", amplification, "x", 1.05, "at most"),
        Figure(f"lost of {4 * each} acknowledged commits", lost, "", 0, "at most"),
    ]


def _kills(place: Path, *, number: int) -> list[Figure]:
    prepare(place, SMALL, facts={"chunk_rows": 4})
    moments = random.Random(0)
    acknowledged: set[int] = set()
    visible = 0
    for first in range(0, 100 * number, 100):
        process, collect = _start(place, list(range(first, first + 100)))
        time.sleep(moments.uniform(0.1, 0.8))
        process.kill()
        acknowledged |= set(collect())
        complete, half = _complete(place)
        visible += half
    lost = len(acknowledged - set(complete))
    return [
        Figure(f"half-visible steps after {number} kills", visible, "", 0, "at most"),
        Figure(f"acknowledged steps lost in {number} kills", lost, "", 0, "at most"),
    ]
