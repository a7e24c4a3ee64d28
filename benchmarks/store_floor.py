"""What writing and reading cannot do without, in bare loops with nothing of this package.

The chunks are those that a step of the same values is stored as; all that is prepared before is
not timed. Bars that these loops miss, no writer or reader of the format reaches on this machine.
"""

from __future__ import annotations

import mmap
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import numpy as np
import numpy.typing as npt
import zstandard
from numcodecs import blosc

from benchmarks.activations import Values, synthetic
from benchmarks.figures import Figure
from store.blosc_encoding import ChunkEncoding
from store.freed_memory import keep_freed_memory
from store.layout import chunk_rows

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Chunk:
    """One chunk: its values, its plane of exponents, and what is stored."""

    values: Values
    exponents: Bytes
    stored: Bytes


def measure(*, quick: bool) -> Iterator[list[Figure]]:
    """Measure the loops for both source dtypes."""
    keep_freed_memory()
    for dtype in ("bfloat16", "float32"):
        values = synthetic(*((4, 8192, 384) if quick else (13, 8192, 768)), dtype=dtype)
        with tempfile.TemporaryDirectory(dir=".") as folder:
            yield _figures(Path(folder), values, dtype, rounds=2 if quick else 5)


def _figures(folder: Path, values: Values, dtype: str, rounds: int) -> list[Figure]:
    chunks = _chunks(values)
    raw = sum(chunk.values.nbytes for chunk in chunks) / 1e9
    files = [folder / str(number) for number in range(len(chunks))]
    # The kernel copies faster to where a page begins than to a little behind it.
    room = np.frombuffer(mmap.mmap(-1, chunks[0].values.nbytes * 2), np.uint8)
    decoded = np.empty_like(chunks[0].values)

    def store(number: int) -> None:
        _entropy(chunks[number])
        _checksums(chunks[number])
        chunks[number].stored.tofile(files[number])

    def by_two() -> None:
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(store, range(len(chunks))))

    loops: dict[str, Callable[[], object]] = {
        "np.save": lambda: np.save(folder / "all.npy", values),
        "stored bytes into the page cache": lambda: [
            chunk.stored.tofile(file) for chunk, file in zip(chunks, files, strict=True)
        ],
        "zstd of the exponents alone": lambda: [_entropy(chunk) for chunk in chunks],
        "checksums of values and stored bytes": lambda: [_checksums(chunk) for chunk in chunks],
        "these three by two threads": by_two,
        "stored bytes out of the page cache": lambda: [_read(file, room) for file in files],
        "Blosc's decoding": lambda: [
            blosc.decompress(chunk.stored[:-4], decoded) for chunk in chunks
        ],
        "checksum of values": lambda: [_checksum(chunk.values) for chunk in chunks],
    }
    cpu, wall = _timed(loops, rounds)
    names = list(loops)
    figures = [Figure(f"{name}, {dtype}", cpu[name] / raw, "CPU s/GB") for name in names]
    writing, reading = sum(cpu[name] for name in names[1:4]), sum(cpu[name] for name in names[5:])
    return [
        *figures,
        Figure(f"writing at least, {dtype}", writing / raw, "CPU s/GB"),
        Figure(f"reading at least, {dtype}", reading / raw, "CPU s/GB"),
        Figure(
            f"writing at best, {dtype}",
            wall["np.save"] / wall["these three by two threads"],
            "x",
            against="speed over np.save, in the page cache",
        ),
    ]


def _chunks(values: Values) -> list[Chunk]:
    encoding = ChunkEncoding("zstd", 1, "shuffle", 4, 1 << 20)
    rows = chunk_rows(values.shape[2], values.shape[1])
    parts = (
        layer[start : start + rows] for layer in values for start in range(0, len(layer), rows)
    )
    return [
        Chunk(
            part,
            np.ascontiguousarray(part.reshape(-1).view(np.uint8)[3::4]),
            np.frombuffer(encoding.encode(part).data, np.uint8),
        )
        for part in parts
    ]


def _timed(
    loops: dict[str, Callable[[], object]], rounds: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the median seconds of processor and of wall time of each loop, taking turns."""
    cpu: dict[str, list[float]] = {name: [] for name in loops}
    wall: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(rounds + 1):
        for name, loop in loops.items():
            began = time.process_time(), time.perf_counter()
            loop()
            cpu[name].append(time.process_time() - began[0])
            wall[name].append(time.perf_counter() - began[1])
    return _medians(cpu), _medians(wall)


def _medians(seconds: dict[str, list[float]]) -> dict[str, float]:
    # The first round warms up.
    return {name: statistics.median(taken[1:]) for name, taken in seconds.items()}


def _entropy(chunk: Chunk) -> None:
    parameters = zstandard.ZstdCompressionParameters(
        strategy=zstandard.STRATEGY_FAST, hash_log=6, min_match=7, window_log=20
    )
    zstandard.ZstdCompressor(compression_params=parameters).compress(chunk.exponents)


def _checksums(chunk: Chunk) -> None:
    _checksum(chunk.values)
    _checksum(chunk.stored)


def _checksum(values: npt.NDArray[np.generic]) -> None:
    google_crc32c.value(values.reshape(-1).view(np.uint8))


def _read(file: Path, room: Bytes) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    os.readv(descriptor, [room])
    os.close(descriptor)
