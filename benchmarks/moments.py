"""The bars of spectra and cosines, against bare products and the programs that people use.

Ratios are of processor time, from processes that run one after the other in turn, all with one
BLAS thread as in a Dask worker; wall time is given for information.
"""

from __future__ import annotations

import functools
import math
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xarray as xr

from analysis import METRICS, compute_metrics
from benchmarks.figures import Figure
from benchmarks.processes import Run, interleaved, ratio, run

SCRIPT = Path(__file__).with_name("moment_contenders.py")
WIDTH = 768

RIVALS: tuple[tuple[str, str, float | None], ...] = (
    ("svd_anisotropy", "SVD", 6.5),
    ("svd_anisotropy", "np.cov and eigvalsh", 2.5),
    ("svd_anisotropy", "PCA of scikit-learn", None),
    ("isoscore", "IsoScore", None),
)
PRODUCTS: tuple[tuple[str, str, float | None], ...] = (
    ("every moment metric", "product", 1.5),
    ("every moment metric", "general product", None),
    ("every moment metric and error", "product", None),
    ("svd_anisotropy", "product", None),
    ("average_cosine", "product", None),
)


def activations(n: int, seed: int = 0, *, width: int = WIDTH) -> npt.NDArray[np.float32]:
    """Rows (token, dim) with a power-law spectrum, an offset, and huge rows at sequence starts."""
    rng = np.random.default_rng(seed)
    scales = np.arange(1, width + 1, dtype=np.float32) ** -0.5
    rows = rng.standard_normal((n, width), dtype=np.float32) * scales
    rows += rng.standard_normal(width, dtype=np.float32)
    rows[::128] *= 30
    rows[7::1009] *= 5
    return rows


def measure(*, quick: bool, pythons: Mapping[str, str]) -> list[Figure]:
    """Measure every figure.

    Args:
        quick: A tenth of the rows, once, where no ratio is held to its bar.
        pythons: Interpreter by first word of a rival's name, where it is not installed here.
    """
    n, repetitions = (10_000, 1) if quick else (100_000, 3)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "rows.npy")
        np.save(data, activations(n))
        once = functools.partial(_once, data=data, pythons=pythons)
        pairs = (*RIVALS, *PRODUCTS)
        names = dict.fromkeys(name for ours, rival, _ in pairs for name in (ours, rival))
        runs = interleaved(list(names), once, repetitions)
    about = f"{n:,} × {WIDTH}"
    figures = _figures(runs, about, quick=quick)
    memory = statistics.median(each.peak_mib for each in runs["svd_anisotropy"])
    bar = None if quick else 50.0
    figures.append(
        Figure("svd_anisotropy: memory beyond the rows", memory, "MiB", bar, "at most", about)
    )
    return figures + _wide(quick=quick) + _accuracy()


def _wide(*, quick: bool) -> list[Figure]:
    """The leading share alone of rows as wide as those of models of 7 billion parameters."""
    n, width = (3_000, 512) if quick else (30_000, 4096)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "wide.npy")
        np.save(data, activations(n, width=width))
        ours, exact = (_once(name, data=data, pythons={}) for name in ("leading_share", "SVD"))
    assert ours is not None
    assert exact is not None
    share, bound, passes = ours.value
    about = f"SVD, {n:,} × {width:,}"
    error = abs(share / exact.value[0] - 1)
    return [
        Figure(
            "leading_share: processor time",
            exact.cpu / ours.cpu,
            "×",
            None if quick else 40.0,
            against=about,
        ),
        Figure("leading_share: wall time", exact.wall / ours.wall, "×", against=about),
        Figure("leading_share: error", error, "relative", 1e-4, "at most", about),
        Figure("leading_share: bound of the error", bound, "relative", 1e-4, "at most", about),
        Figure("leading_share: passes over the rows", passes, "passes", against=about),
    ]


def _once(contender: str, *, data: Path, pythons: Mapping[str, str]) -> Run | None:
    python = pythons.get(contender.split()[0], sys.executable)
    return run(SCRIPT, contender, data, python, threads=1)


def _figures(runs: Mapping[str, Sequence[Run]], about: str, *, quick: bool) -> list[Figure]:
    figures = []
    for ours, rival, bar in RIVALS:
        if runs[rival]:
            against = f"{rival}, {about}"
            held = None if quick else bar
            cpu, wall = (ratio(runs[rival], runs[ours], of=of) for of in ("cpu", "wall"))
            figures += [
                Figure(f"{ours}: processor time", cpu, "×", held, against=against),
                Figure(f"{ours}: wall time", wall, "×", against=against),
            ]
    for ours, rival, bar in PRODUCTS:
        against = f"{rival} XᵀX, {about}"
        cost = ratio(runs[ours], runs[rival])
        held = None if quick else bar
        figures.append(Figure(f"{ours}: cost", cost, "products", held, "at most", against))
    return figures


def _accuracy() -> list[Figure]:
    rows = activations(20_000)
    rows = rows - rows.mean(axis=0)
    rows += 1000 * rows.std() * np.random.default_rng(1).standard_normal(WIDTH, dtype=np.float32)
    values = np.linalg.svd(rows - rows.mean(axis=0, dtype=np.float64), compute_uv=False) ** 2
    shares, roots = values / values.sum(), np.sqrt(values) / np.sqrt(values).sum()
    exact = {
        "svd_anisotropy": shares[0],
        "participation_ratio": 1 / (shares**2).sum(),
        "effective_rank": math.exp(-(roots * np.log(roots)).sum()),
    }
    assert set(exact) <= set(METRICS)
    found = compute_metrics(xr.DataArray(rows, dims=("token", "dim")), list(exact), errors=False)
    return [
        Figure(
            f"{name} at an offset of 1,000 spreads: error",
            abs(found[name].item() / value - 1),
            "relative",
            1e-6,
            "at most",
            "float64 SVD",
        )
        for name, value in exact.items()
    ]
