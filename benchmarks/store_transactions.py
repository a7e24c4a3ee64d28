"""Committing a step, when few and when many steps are there."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from unittest import mock

import numpy as np
import zarr

from benchmarks.activations import PATH, prepare, store_step, synthetic
from benchmarks.figures import Figure
from benchmarks.store_open import blank_cells
from store.cells import write_cells
from store.repository import Repository

SHAPE = (33, 64, 256)
"""33 layers, and chunks of 4 rows and 4 KiB, so that each is an object of its own."""

CHUNK_ROWS = 4


def measure(*, quick: bool) -> Iterator[list[Figure]]:
    """Measure commits."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        yield _commits(Path(folder) / "commits", steps=60 if quick else 1000)


def _commits(place: Path, *, steps: int) -> list[Figure]:
    """Time commits at 33 layers × 16 chunks, when few and when many steps are there."""
    facts = {"chunk_rows": CHUNK_ROWS}
    repository = prepare(place, SHAPE, step_capacity=steps + 20, facts=facts)
    values = synthetic(*SHAPE, dtype="float32")
    first = _commit_seconds(repository, values, range(10))
    for step in range(10, steps):
        _refer(repository, step)
    last = _commit_seconds(repository, values, range(steps, steps + 10))
    return [
        Figure("commit before the disk sync, step 5", 1e3 * first, "ms", 10, "at most"),
        Figure(f"commit, step {steps}", last / first, "x", 1.5, "at most", "step 5"),
    ]


def _refer(repository: Repository, step: int) -> None:
    """Commit a step that manifests know as any other, but whose chunks were never written.

    Half a million files would take longer than all that is measured.
    """
    # Not above: it has to be imported after the store, which says what it may log.
    from icechunk import VirtualChunkSpec

    chunks = [
        VirtualChunkSpec([step, layer, chunk, 0], f"file:///nowhere/{step}", 0, 4096)
        for layer, chunk in product(range(SHAPE[0]), range(SHAPE[1] // CHUNK_ROWS))
    ]
    session, root = repository.write()
    session.store.set_virtual_refs(f"{PATH}/residual", chunks, validate_containers=False)
    group = root[PATH]
    assert isinstance(group, zarr.Group)
    write_cells(group, step, blank_cells(step))
    group["residual_checksum"][step] = 1  # type: ignore[index]  # an array
    with (
        mock.patch("store.repository.sync_filesystem"),
        mock.patch("store.durable.sync_filesystem"),
    ):
        repository.commit(session, f"refer to step {step}", rebase=False)


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
