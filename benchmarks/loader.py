"""Reading rows into PyTorch: in order and shuffled, against the bare reading of the store.

    python benchmarks/loader.py [--json] [--quick]

It writes below the current directory, so that it measures the disk you are on. Speeds are ratios
within one round, of whole epochs; the median over rounds is shown. Memory is how far the resident
memory of a fresh process rises above what it was before an epoch (Linux), which reads several
times as much as its buffer holds.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ["ICECHUNK_NO_LOGS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from torch.utils.data import DataLoader

from benchmarks.activations import PATH, prepare, store_step, synthetic
from benchmarks.figures import Figure, progress, show
from benchmarks.memory import forget_peak, peak, resident
from flows.capture.dataset import RowDataset
from store.loader import load_rows
from store.repository import Repository
from store.slab import slabs

MIB = 2**20


def seconds(batches: Iterable[object]) -> float:
    """Return the wall time of going through all batches."""
    started = time.perf_counter()
    for _ in batches:
        pass
    return time.perf_counter() - started


def loaded(uri: str, buffer_bytes: int, *, shuffle: bool) -> DataLoader[object]:
    """Return batches of tensors of everything that is stored."""
    rows = load_rows(uri, PATH, shuffle=shuffle, buffer_bytes=buffer_bytes)
    return DataLoader(RowDataset(rows), batch_size=None)


def rates(uri: str, buffer_bytes: int, rounds: int) -> list[Figure]:
    """Measure each way of reading in its turn."""
    found = slabs(Repository.open(uri, read_only=True), PATH)
    in_order, shuffled = (loaded(uri, buffer_bytes, shuffle=shuffle) for shuffle in (False, True))
    ways: dict[str, Callable[[], Iterable[object]]] = {
        "bare": lambda: (block for slab in found for block in slab.blocks()),
        "in order": lambda: in_order,
        "shuffled": lambda: shuffled,
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        took = {name: seconds(way()) for name, way in ways.items()}
        told = ", ".join(f"{name} {value:.2f} s" for name, value in took.items())
        progress(f"round {number} of {rounds}: {told}" if number else f"warming up: {told}")
        for name in ways if number else ():
            taken[name].append(took[name])
    total = sum(4 * slab.shape[0] * slab.shape[1] for slab in found) / MIB

    def median(over: str, under: str) -> float:
        pairs = zip(taken[over], taken[under], strict=True)
        return statistics.median(one / other for one, other in pairs)

    return [
        Figure("store, bare", total / statistics.median(taken["bare"]), "MiB/s"),
        Figure("in order", median("bare", "in order"), "×", 0.8, against="the store, bare"),
        Figure("shuffled", median("in order", "shuffled"), "×", 0.5, against="in order"),
    ]


def memory(uri: str, buffer_bytes: int) -> list[Figure]:
    """Measure what shuffling adds to the memory of a fresh process."""
    little = load_rows(uri, PATH, layers=[0], shuffle=False)
    seconds(RowDataset(little))
    # Importing took more than an epoch does: its peak is forgotten.
    forget_peak()
    before = resident()
    seconds(loaded(uri, buffer_bytes, shuffle=True))
    grown = peak() - before
    return [
        Figure("memory beside the process", grown / MIB, "MiB"),
        Figure(
            "memory per byte of buffer", grown / buffer_bytes, "×", 1.5, "at most", "its buffer"
        ),
    ]


def main() -> int:
    """Measure, print, and return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="less data, fewer rounds")
    arguments = parser.parse_args()
    layers, tokens, rounds = (13, 8192, 2) if arguments.quick else (13, 24576, 5)
    buffer_bytes = (128 if arguments.quick else 256) * MIB
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(dir=".") as folder:
        progress(f"storing {layers * tokens * 768 * 4 / MIB:.0f} MiB")
        repository = prepare(Path(folder) / "store", (layers, tokens, 768))
        store_step(repository, 0, synthetic(layers, tokens, 768, dtype="bfloat16"))
        uri = repository.uri
        with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
            figures = pool.submit(rates, uri, buffer_bytes, rounds).result()
            figures += pool.submit(memory, uri, buffer_bytes).result()
    show(figures, as_json=arguments.json)
    return int(any(figure.holds is False for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
