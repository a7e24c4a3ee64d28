"""Opening a store, as models and steps become many."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.activations import prepare
from benchmarks.figures import Figure
from store.arrays import member
from store.cells import Cell, write_cells
from store.layout import fill_value
from store.schema import STEP, STEP_COORDINATES

OPENINGS = 3
"""How often a store is opened, of which the least counts."""


def measure(*, quick: bool) -> Iterator[list[Figure]]:
    """Measure opening."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        yield from _opening(Path(folder), quick=quick)


def _opening(place: Path, *, quick: bool) -> Iterator[list[Figure]]:
    models, steps = (5, 50) if quick else (20, 150)
    shapes = {
        "one": (1, steps, 13, 0.2),
        "many": (models, steps, 13, 1.0),
        "long": (1, 300 if quick else 1000, 33, 0.5),
    }
    for name, (n_models, n_steps, layers, bar) in shapes.items():
        for number in range(n_models):
            fill_blank(place / name, f"model-{number}", n_steps, layers)
        seconds, mib = open_in_new_process(place / name)
        label = f"opening {n_models} model(s) × {n_steps} steps × {layers} layers"
        yield [
            Figure(label, seconds, "s", bar, "at most"),
            Figure(f"memory of {label}", mib, "MiB", 50, "at most"),
        ]


def fill_blank(place: Path, model: str, steps: int, layers: int) -> None:
    """Create a model with complete steps that hold nothing: opening reads labels alone."""
    repository = prepare(place, (layers, 64, 16), model=model, step_capacity=steps)

    def change(root: object) -> None:
        group = root[f"corpus/{model}"]  # type: ignore[index]
        for slot in range(steps):
            write_cells(group, slot, blank_cells(slot))
        member(group, "residual_checksum")[:] = 1

    repository.update("fill", change)


def blank_cells(step: int) -> dict[str, Cell]:
    """Return the coordinates of a complete step of which nothing else is known."""
    blank: dict[str, Cell] = {name: fill_value(one) for name, one in STEP_COORDINATES.items()}
    return {**blank, STEP: step, "complete": True, "sites": "residual"}


_OPENING = """
import sys, time
import dask.array, psutil
from store import open_store
def mib(): return psutil.Process().memory_info().rss / 2**20
before, started = mib(), time.perf_counter()
tree = open_store(sys.argv[1])
print(time.perf_counter() - started, mib() - before)
"""


def open_in_new_process(place: Path) -> tuple[float, float]:
    """Return seconds and MiB of opening a store in a process of its own, the least of some."""
    runs = [
        subprocess.run(
            [sys.executable, "-c", _OPENING, str(place.resolve())],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[1],
        ).stdout.split()
        for _ in range(OPENINGS)
    ]
    return min(float(run[0]) for run in runs), min(float(run[1]) for run in runs)
