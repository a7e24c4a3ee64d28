"""What planning costs over a million chunks: the lazy arrays, and the tasks of all metrics.

The store holds the metadata of one model and not one activation: none of what is measured reads
any.
"""

from __future__ import annotations

import sys
import tempfile
import tracemalloc
from pathlib import Path

from analysis.choose import make_plan
from analysis.compute import BATCH_BYTES
from analysis.stretches import divide
from analysis.tasks import batch_tasks
from analysis.work import find_work
from benchmarks.activations import CORPUS, MODEL
from benchmarks.figures import Figure
from benchmarks.scale import fill, seconds
from store.read import open_store
from store.repository import Repository

STEPS, LAYERS, TOKENS, WIDTH, ROWS = 150, 40, 171_000, 1024, 1024


def measure_graph(*, quick: bool) -> list[Figure]:
    """Measure every figure.

    Args:
        quick: A tenth of the steps, where no bar is held.
    """
    steps = STEPS // (10 if quick else 1)
    chunks = steps * LAYERS * -(-TOKENS // ROWS)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "store"
        fill(place, 1, steps, LAYERS, slab=(TOKENS, WIDTH), facts={"chunk_rows": ROWS})
        sys.stderr.write(f"{chunks:,} chunks described\n")
        path = f"{CORPUS.name}/{MODEL}-000"

        def build() -> object:
            return open_store(place)[path]["residual"].__dask_graph__()

        build()
        took = seconds(build)
        tracemalloc.start()
        graph = build()
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        del graph
        tasks = _tasks(place, path)
    about = f"{chunks:,} chunks"
    bars = (None, None) if quick else (1.0, 100.0)
    return [
        Figure("graph of lazy arrays: time", took, "s", bars[0], "at most", about),
        Figure("graph of lazy arrays: memory", held / 2**20, "MiB", bars[1], "at most", about),
        Figure(
            "tasks of all metrics",
            tasks / (steps * LAYERS),
            "a slab",
            2.0,
            "at most",
            f"{steps} steps × {LAYERS} layers",
        ),
    ]


def _tasks(place: Path, path: str) -> int:
    """Return how many tasks a scheduler is given for all metrics of all steps."""
    repository = Repository.open(place, read_only=True)
    plan = make_plan(None, None, labelled=True)
    work = find_work(
        repository, path, repository.snapshot_id(), plan, site="residual", steps=None, layers=None
    )
    whole, stretches = divide(work.tasks)
    return len(batch_tasks(whole, BATCH_BYTES)) + len(stretches)
