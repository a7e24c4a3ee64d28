"""Writing and reading one tensor: ours against the usual ways, in rounds, each in its turn."""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np

from benchmarks.activations import Values, synthetic
from benchmarks.figures import Figure
from benchmarks.page_cache import forget
from benchmarks.store_contenders import Contender, contenders
from store.durable import sync_filesystem

TOKENS_READ = 20


@dataclass(frozen=True)
class Run:
    """Seconds and bytes of one contender in one round."""

    write: float
    write_cpu: float
    durable: float
    cold: float
    warm: float
    read_cpu: float
    token: float
    stored: int


def measure(*, quick: bool) -> Iterator[list[Figure]]:
    """Measure writing, reading and size, of one source dtype after the other."""
    shape = (7, 8192, 384) if quick else (13, 8192, 768)
    for dtype in ("bfloat16", "float32"):
        values = synthetic(*shape, dtype=dtype)
        runs = _rounds(values, 2 if quick else 4)
        yield _figures(runs, values.nbytes, dtype)


def _rounds(values: Values, number: int) -> dict[str, list[Run]]:
    runs: dict[str, list[Run]] = {name: [] for name in contenders()}
    for round_number in range(number + 1):
        for name, contender in contenders().items():
            with tempfile.TemporaryDirectory(dir=".") as folder:
                run = _run(contender, Path(folder), values)
            if round_number > 0:  # The first round warms up.
                runs[name].append(run)
    return runs


def _run(contender: Contender, place: Path, values: Values) -> Run:
    contender.create(place, values.shape)
    sync_filesystem(place)
    # What a commit waits for the disk is measured apart, for all alike.
    with (
        mock.patch("store.repository.sync_filesystem"),
        mock.patch("store.durable.sync_filesystem"),
    ):
        write, write_cpu = _timed(lambda: contender.write(place, values))
    sync, _ = _timed(lambda: sync_filesystem(place))
    forget(place)
    cold, _ = _timed(lambda: contender.read(place))
    warm, read_cpu = _timed(lambda: contender.read(place))
    draw = np.random.default_rng(0)
    tokens = [
        _timed(
            lambda layer=layer, row=row: contender.token(place, layer, row)  # type: ignore[misc]
        )[0]
        for layer, row in zip(
            draw.integers(0, values.shape[0], TOKENS_READ),
            draw.integers(0, values.shape[1], TOKENS_READ),
            strict=True,
        )
    ]
    stored = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    token = statistics.median(tokens)
    return Run(write, write_cpu, write + sync, cold, warm, read_cpu, token, stored)


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), _cpu()
    work()
    return time.perf_counter() - wall, _cpu() - cpu


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _figures(runs: dict[str, list[Run]], raw: int, dtype: str) -> list[Figure]:
    gigabytes = raw / 1e9

    def ratio(rival: str, part: str) -> float:
        pairs = zip(runs[rival], runs["actlas"], strict=True)
        return statistics.median(getattr(a, part) / getattr(b, part) for a, b in pairs)

    def ours(part: str) -> float:
        return statistics.median(getattr(run, part) for run in runs["actlas"])

    bars = {
        "np.save": {"write": 0.45, "durable": 0.45, "cold": 0.5, "warm": 0.17},
        "zarr, our codec": {"write": 1.0},
        "zarr, default": {"write": 5.0},
    }
    figures = [
        Figure(f"{part}, {dtype}", ratio(rival, part), "x", bars.get(rival, {}).get(part),
               against=f"speed over {rival}")
        for rival in runs
        if rival != "actlas"
        for part in ("write", "durable", "cold", "warm")
    ]  # fmt: skip
    size_bar = 0.35 if dtype == "bfloat16" else 0.85
    return [
        *figures,
        Figure(f"write CPU, {dtype}", ours("write_cpu") / gigabytes, "s/GB", 1.7, "at most"),
        Figure(f"read CPU, {dtype}", ours("read_cpu") / gigabytes, "s/GB", 0.5, "at most"),
        Figure(f"one random token, {dtype}", 1e3 * ours("token"), "ms", 5.0, "at most"),
        Figure(f"bytes stored, {dtype}", ours("stored") / raw, "of raw", size_bar, "at most"),
    ]
