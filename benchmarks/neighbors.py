"""The bars of neighbours and intrinsic dimension, against the programs that people use.

Ratios are of processor time, from processes that run one after the other in turn, all with the
same number of threads; wall time is given for information.
"""

from __future__ import annotations

import functools
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from analysis.metrics.intrinsic_dimension import two_nn
from analysis.neighbors import nearest_neighbors
from benchmarks.figures import Figure
from benchmarks.processes import Run, interleaved, ratio, run

SCRIPT = Path(__file__).with_name("neighbor_contenders.py")
WIDTH = 768

BARS: tuple[tuple[str, str, float], ...] = (
    ("two_nn", "skdim TwoNN", 6.0),
    ("two_nn", "DADApy 2NN", 3.0),
    ("two_nn", "faiss flat", 1.4),
    ("gride", "DADApy GRIDE", 4.5),
    ("mada", "skdim MADA", 15.0),
    ("mle", "skdim MLE", 2.5),
)


def activations(n: int, seed: int = 0) -> npt.NDArray[np.float32]:
    """Rows (token, dim) of a random network over 16 latents, with noise and a common offset."""
    rng = np.random.default_rng(seed)
    hidden = np.tanh(rng.standard_normal((n, 16)) @ rng.standard_normal((16, 256)) / 4)
    rows = hidden @ rng.standard_normal((256, WIDTH)) / 4
    rows += 0.02 * rng.standard_normal((n, WIDTH)) + 3 * rng.standard_normal(WIDTH)
    return rows.astype(np.float32)


def measure(*, quick: bool, pythons: Mapping[str, str]) -> list[Figure]:
    """Measure every figure.

    Args:
        quick: A fifth of the rows, once, where no ratio is held to its bar; nothing of 100,000.
        pythons: Interpreter by first word of a rival's name, where it is not installed here.
    """
    figures = _accuracy()
    with tempfile.TemporaryDirectory() as folder:
        once = functools.partial(_once, folder=Path(folder), pythons=pythons)
        figures += _ratios(once, quick=quick)
        if not quick:
            figures += _large(once, n=100_000)
    return figures


def measure_loop(*, quick: bool, pythons: Mapping[str, str]) -> list[Figure]:
    """Measure against the loop over pairs of rows that LLM-Microscope has.

    Args:
        quick: A fourth of the rows, where no ratio is held to its bar.
        pythons: Interpreter by first word of a rival's name, where it is not installed here.
    """
    with tempfile.TemporaryDirectory() as folder:
        once = functools.partial(_once, folder=Path(folder), pythons=pythons)
        return _against_loop(once, quick=quick)


def _once(contender: str, *, n: int, folder: Path, pythons: Mapping[str, str]) -> Run | None:
    data = folder / f"{n}.npy"
    if not data.exists():
        np.save(data, activations(n))
    python = pythons.get(contender.split()[0], sys.executable)
    return run(SCRIPT, contender, data, python)


def _ratios(once: functools.partial[Run | None], *, quick: bool) -> list[Figure]:
    n, repetitions = (2_000, 1) if quick else (10_000, 2)
    names = list(dict.fromkeys(name for ours, rival, _ in BARS for name in (ours, rival)))
    runs = interleaved(names, functools.partial(once, n=n), repetitions)
    figures = []
    for ours, rival, bar in BARS:
        if runs[rival]:
            about = f"{rival}, {n:,} × {WIDTH}"
            cpu, wall = (ratio(runs[rival], runs[ours], of=of) for of in ("cpu", "wall"))
            figures += [
                Figure(f"{ours}: processor time", cpu, "×", None if quick else bar, against=about),
                Figure(f"{ours}: wall time", wall, "×", against=about),
            ]
    figures += [
        Figure(f"{name}: processor time", statistics.median(r.cpu for r in runs[name]), "s")
        for name in dict.fromkeys(ours for ours, _, _ in BARS)
    ]
    return figures + _agreement(runs, n)


def _agreement(runs: Mapping[str, Sequence[Run]], n: int) -> list[Figure]:
    figures = []
    for ours, rival, _ in BARS:
        if runs[rival] and rival != "faiss flat":
            pairs = zip(runs[ours][0].value, runs[rival][0].value, strict=True)
            worst = max(abs(own / theirs - 1) for own, theirs in pairs)
            about = f"{rival}, {n:,} × {WIDTH}"
            figures.append(Figure(f"{ours}: difference", worst, "relative", 1e-4, "at most", about))
    return figures


def _against_loop(once: functools.partial[Run | None], *, quick: bool) -> list[Figure]:
    # More rows could be compared, but not on every machine: at 2,000 rows glibc has been seen to
    # keep what every pass frees, 12 MB each.
    n, alike = (1_000 if quick else 10_000), 500
    ours, loop = once("two_nn_lowest_fifth", n=alike), once("LLM-Microscope", n=alike)
    if ours is None or loop is None:
        return []
    difference = abs(ours.value[0] / loop.value[0] - 1)
    about = f"LLM-Microscope, {alike:,} × {WIDTH}"
    agreement = Figure(
        "two_nn_lowest_fifth: difference", difference, "relative", 1e-4, "at most", about
    )
    # A pass costs the same for every row, and there are as many passes as rows: half an hour.
    names = ("two_nn_lowest_fifth", "LLM-Microscope 50", "LLM-Microscope 550")
    runs = interleaved(names, functools.partial(once, n=n), 1 if quick else 3)
    whole = statistics.median(
        (many.cpu - few.cpu) / 500 * n / own.cpu
        for own, few, many in zip(*(runs[name] for name in names), strict=True)
    )
    about = f"LLM-Microscope, {n:,} × {WIDTH}, from 500 passes of its loop"
    bar = None if quick else 500
    return [
        Figure("two_nn_lowest_fifth: processor time", whole, "×", bar, against=about),
        agreement,
    ]


def _large(once: functools.partial[Run | None], *, n: int) -> list[Figure]:
    measured = once("two_nn", n=n)
    assert measured is not None
    about = f"{n:,} × {WIDTH}, of which the rows are {n * WIDTH * 4 / 2**20:.0f} MiB"
    return [
        Figure("two_nn: wall time", measured.wall, "s", against=about),
        Figure("two_nn: memory beyond the rows", measured.peak_mib, "MiB", 100, "at most", about),
    ]


def _accuracy() -> list[Figure]:
    rows = activations(2_000)
    rng = np.random.default_rng(1)
    near = rows[:1_000] + np.float32(1e-4) * rng.standard_normal((1_000, WIDTH)).astype(np.float32)
    both = np.concatenate([rows[:1_000], near])
    found = nearest_neighbors(both, 2)
    wide = both.astype(np.float64)
    exact = np.linalg.norm(wide - wide[found.indices[:, 0]], axis=1)
    # Its copy at 1e-4 is the nearest of every row; nothing else is nearer than the noise, 0.5.
    assert (found.indices[:, 0] == (np.arange(2_000) + 1_000) % 2_000).all()
    worst = float(np.abs(found.distances[:, 0] / exact - 1).max())
    plain = two_nn(nearest_neighbors(rows, 2))
    copies = two_nn(nearest_neighbors(np.concatenate([rows, rows[:200]]), 2))
    return [
        Figure("nearest distance of near-duplicates: error", worst, "relative", 1e-12, "at most"),
        Figure(
            "two_nn with 10 % exact copies: error",
            abs(copies / plain - 1),
            "relative",
            0.01,
            "at most",
            "the value without copies",
        ),
    ]
