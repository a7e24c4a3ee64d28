"""What a big store's tables of contents cost: planning, opening, listing and a metric's tasks.

    python benchmarks/scale.py [--json] [--quick]

The store holds the metadata of 100 models × 150 steps × 40 layers, 600,000 slabs, and not one
activation: none of what is measured reads any.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import zarr

from analysis.compute import measure
from analysis.engines import THREADS, run_tasks
from benchmarks.activations import CORPUS, prepare
from benchmarks.figures import Figure, show
from benchmarks.store_open import open_in_new_process
from flows.monitoring import held_gauges
from store.arrays import member
from store.catalogue import catalogue
from store.identity import JSON
from store.layout import fill_value
from store.repository import Repository
from store.schema import STEP, STEP_COORDINATES
from store.stacking import cube

FULL = (100, 150, 40)
QUICK = (5, 20, 8)
LONG_SECONDS = 10.0
TOKENS, WIDTH = 16_384, 2048
"""Size of a slab: none is written, and 128 MiB make it a task of its own."""


def fill(
    place: Path,
    models: int,
    steps: int,
    layers: int,
    *,
    slab: tuple[int, int] = (TOKENS, WIDTH),
    facts: Mapping[str, JSON] | None = None,
) -> None:
    """Create models whose steps are all complete, as far as their labels tell.

    Args:
        place: Where the store is created.
        models: Number of models.
        steps: Steps of each.
        layers: Layers of each.
        slab: Shape (token, dim) of a layer of a step.
        facts: Attributes of each model.
    """
    for number in range(models):
        name = f"model-{number:03}"
        shape = (layers, *slab)
        repository = prepare(place, shape, model=name, step_capacity=steps, facts=facts)
        repository.update(f"fill {name}", lambda root, name=name: _complete(root, name, steps))


def _complete(root: zarr.Group, model: str, steps: int) -> None:
    group = root[f"{CORPUS.name}/{model}"]
    assert isinstance(group, zarr.Group)
    for name, item in STEP_COORDINATES.items():
        column = member(group, name)
        values = np.full(steps, fill_value(item), dtype=column.dtype)
        if name == STEP:
            values = np.arange(steps).astype(column.dtype)
        elif name == "complete":
            values[:] = True
        elif name == "sites":
            values[:] = "residual"
        column[:] = values
    member(group, "residual_checksum")[:] = 1


def seconds(work: Callable[[], object]) -> float:
    """Return the least wall time of three runs, or that of the first where it takes long."""
    times: list[float] = []
    while len(times) < 3 and sum(times) < LONG_SECONDS:
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def run(models: int, steps: int, layers: int) -> Iterator[Figure]:
    """Measure one size, and yield each figure as it comes."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder).resolve() / "store"
        started = time.perf_counter()
        fill(place, models, steps, layers)
        described = f"{models} models × {steps} steps × {layers} layers"
        yield Figure(f"making {described}", time.perf_counter() - started, "s")
        size = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
        yield Figure("size of the metadata", size / 2**20, "MiB")
        open_seconds, mib = open_in_new_process(place)
        yield Figure("open_store", open_seconds, "s", 5, "at most")
        yield Figure("memory of open_store", mib, "MiB", 300, "at most")
        yield from questions(place)
        path = f"{CORPUS.name}/model-000"
        planning = seconds(lambda: measure(str(place), path, plan=True))
        yield Figure("planning all metrics of a model", planning, "s", 30, "at most")
        tasks = measure(str(place), path, plan=True).slabs
        yield Figure("tasks of a model", tasks, "", against=f"{steps} × {layers} slabs")
        yield Figure("tasks of all models", tasks * models, "")
        yield Figure("a model's Dask graph", _graph(tasks), "s", 5, "at most")


def questions(place: Path) -> Iterator[Figure]:
    """Measure what asks about every model."""
    repository = Repository.open(place, read_only=True)
    yield Figure("actlas ls", seconds(lambda: catalogue(repository)), "s", 10, "at most")
    yield Figure("actlas monitor", seconds(lambda: list(held_gauges(repository))), "s")
    yield Figure("cube of all", seconds(lambda: cube(place, corpus=CORPUS.name)), "s")


def _graph(tasks: int) -> float:
    """Return the time that Dask's threads take to go through as many tasks that do nothing."""
    return seconds(lambda: run_tasks(_nothing, range(tasks), _nothing, THREADS))


def _nothing(_: int | None) -> None:
    """Take no time."""


def main() -> int:
    """Measure, print, and return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="a small store")
    arguments = parser.parse_args()
    figures = []
    for figure in run(*(QUICK if arguments.quick else FULL)):
        figures.append(figure)
        sys.stderr.write(f"{figure.name}: {figure.value:.4g} {figure.unit}\n")
    show(figures, as_json=arguments.json)
    return int(any(figure.holds is False for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
