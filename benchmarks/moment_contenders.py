"""Spectra and cosines of rows, ours and others', each run alone: NAME ROWS.npy.

Every contender gets the same float32 rows and returns the share of the first component, or the
average cosine. The others are run by their own published code, or by the few lines of NumPy that
people write.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.processes import report

Rows = npt.NDArray[np.float32]
LENGTH = 128


def _product(rows: Rows) -> Sequence[float]:
    return [float((rows.T @ rows)[0, 0])]


def _general_product(rows: Rows) -> Sequence[float]:
    # NumPy computes half of a matrix times its own transpose; of two arrays it computes all.
    return [float((rows.T @ rows.copy())[0, 0])]


def _cov(rows: Rows) -> Sequence[float]:
    values = np.linalg.eigvalsh(np.cov(rows.T))
    return [float(values[-1] / values.sum())]


def _svd(rows: Rows) -> Sequence[float]:
    values = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False).astype(np.float64)
    return [float(values[0] ** 2 / (values**2).sum())]


def _leading() -> Callable[[Rows], Sequence[float]]:
    from analysis.krylov import PILOT_ROWS, leading_share

    def estimate(rows: Rows) -> Sequence[float]:
        pilot = rows[np.linspace(0, len(rows) - 1, min(PILOT_ROWS, len(rows))).astype(int)]
        found = leading_share(
            lambda: (rows[at : at + 4096] for at in range(0, len(rows), 4096)), pilot
        )
        return [found.share, found.bound, found.passes]

    return estimate


def _scikit_learn() -> Callable[[Rows], Sequence[float]]:
    from sklearn.decomposition import PCA

    return lambda rows: [float(PCA().fit(rows).explained_variance_ratio_[0])]


def _isoscore() -> Callable[[Rows], Sequence[float]]:
    from IsoScore import IsoScore

    return lambda rows: [float(IsoScore.IsoScore(rows))]


def _cosine_matrix() -> Callable[[Rows], Sequence[float]]:
    from sklearn.metrics.pairwise import cosine_similarity

    def estimate(rows: Rows) -> Sequence[float]:
        n = len(rows)
        return [(float(cosine_similarity(rows).sum(dtype=np.float64)) - n) / (n * (n - 1))]

    return estimate


def _ours(
    *names: str, populations: Sequence[str] = ("all",), errors: bool = False
) -> Callable[[Rows], Sequence[float]]:
    import xarray as xr

    from analysis.choose import make_plan
    from analysis.evaluate import measure_layer
    from analysis.inputs import ArrayRows
    from analysis.metrics import METRICS
    from analysis.populations import TokenTable

    chosen = names or [
        name
        for name, metric in METRICS.items()
        if metric.needs in ("directions", "moments", "spectrum")
    ]

    def measure(rows: Rows) -> Sequence[float]:
        position = np.arange(len(rows)) % LENGTH
        table = TokenTable.from_coordinates(
            special=position == LENGTH - 1,
            position=position,
            sequence=np.arange(len(rows)) // LENGTH,
            causal=True,
        )
        plan = make_plan(chosen, populations, labelled=True, errors=errors)
        source = ArrayRows(xr.Variable(("token", "dim"), rows))
        return [float(measure_layer(source, table, plan)[chosen[0]][populations[0]])]

    return measure


FOUR = ("all", "content", "typical", "unit")

CONTENDERS: dict[str, Callable[[], Callable[[Rows], Sequence[float]]]] = {
    "every moment metric": lambda: _ours(populations=FOUR),
    "every moment metric and error": lambda: _ours(populations=FOUR, errors=True),
    "svd_anisotropy": lambda: _ours("svd_anisotropy"),
    "isoscore": lambda: _ours("isoscore"),
    "average_cosine": lambda: _ours("average_cosine"),
    "product": lambda: _product,
    "general product": lambda: _general_product,
    "np.cov and eigvalsh": lambda: _cov,
    "leading_share": _leading,
    "SVD": lambda: _svd,
    "PCA of scikit-learn": _scikit_learn,
    "IsoScore": _isoscore,
    "cosine_similarity of scikit-learn": _cosine_matrix,
}


def main(name: str, data: str) -> None:
    """Run one contender and report on it."""
    warnings.simplefilter("ignore")
    work = CONTENDERS[name]()
    few = np.random.default_rng(0).standard_normal((2 * LENGTH, 24)).astype(np.float32)

    def prepare() -> Callable[[], Sequence[float]]:
        rows = np.load(data)
        return lambda: work(rows)

    report(prepare, lambda: work(few))


if __name__ == "__main__":
    main(*sys.argv[1:])
