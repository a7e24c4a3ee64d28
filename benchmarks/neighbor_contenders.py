"""Neighbour estimators, ours and others', each run alone: NAME ROWS.npy.

Every contender gets the same float32 rows and returns its estimate. The others are run by their
own published code with its defaults.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.processes import THREADS, report

Rows = npt.NDArray[np.float32]


def _ours(metric: str, k: int) -> Callable[[Rows], Sequence[float]]:
    from analysis.metrics import METRICS
    from analysis.neighbors import nearest_neighbors

    def estimate(rows: Rows) -> Sequence[float]:
        found = nearest_neighbors(rows, min(k, len(rows) - 1), threads=THREADS)
        return np.atleast_1d(METRICS[metric].function(found)).tolist()

    return estimate


def _skdim(name: str, **options: object) -> Callable[[Rows], Sequence[float]]:
    import skdim

    return lambda rows: [getattr(skdim.id, name)().fit(rows, **options).dimension_]


def _dadapy_two_nn() -> Callable[[Rows], Sequence[float]]:
    from dadapy import Data

    return lambda rows: [Data(rows, verbose=False, n_jobs=THREADS).compute_id_2NN()[0]]


def _dadapy_gride() -> Callable[[Rows], Sequence[float]]:
    from dadapy import Data

    def estimate(rows: Rows) -> Sequence[float]:
        data = Data(rows, verbose=False, n_jobs=THREADS)
        return list(data.return_id_scaling_gride(range_max=min(128, len(rows) - 1))[0])

    return estimate


def _faiss() -> Callable[[Rows], Sequence[float]]:
    import faiss

    faiss.omp_set_num_threads(THREADS)

    def estimate(rows: Rows) -> Sequence[float]:
        index = faiss.IndexFlatL2(rows.shape[1])
        index.add(rows)
        nearest, second = index.search(rows, 3)[0][:, 1:].T.astype(np.float64)
        logarithms = np.log(second / nearest) / 2
        return [(len(rows) - 1) / logarithms.sum()]

    return estimate


def _llm_microscope(passes: int | None = None) -> Callable[[Rows], Sequence[float]]:
    """The loop over rows, or its first passes alone, whose costs are alike."""
    import torch

    torch.set_num_threads(THREADS)
    spec = importlib.util.find_spec("llm_microscope")
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError("llm_microscope")
    # Its __init__ imports a module that is not there; the functions stand alone.
    source = Path(spec.submodule_search_locations[0]) / "functions.py"
    described = importlib.util.spec_from_file_location("functions", source)
    assert described is not None
    assert described.loader is not None
    functions = importlib.util.module_from_spec(described)
    described.loader.exec_module(functions)
    if passes is not None:
        functions.range = lambda n: range(min(n, passes))  # type: ignore[attr-defined]
    return lambda rows: [functions.intrinsic_dimension(torch.from_numpy(rows), "cpu")]


CONTENDERS: dict[str, Callable[[], Callable[[Rows], Sequence[float]]]] = {
    "two_nn": lambda: _ours("two_nn", 2),
    "two_nn_lowest_fifth": lambda: _ours("two_nn_lowest_fifth", 2),
    "gride": lambda: _ours("gride", 128),
    "mle": lambda: _ours("mle", 20),
    "mada": lambda: _ours("mada", 20),
    "mom": lambda: _ours("mom", 100),
    "skdim TwoNN": lambda: _skdim("TwoNN"),
    "skdim MLE": lambda: _skdim("MLE", n_neighbors=20),
    "skdim MADA": lambda: _skdim("MADA", n_neighbors=20),
    "skdim MOM": lambda: _skdim("MOM"),
    "DADApy 2NN": _dadapy_two_nn,
    "DADApy GRIDE": _dadapy_gride,
    "faiss flat": _faiss,
    "LLM-Microscope": _llm_microscope,
    "LLM-Microscope 50": lambda: _llm_microscope(50),
    "LLM-Microscope 550": lambda: _llm_microscope(550),
}


def main(contender: str, path: str) -> None:
    """Run one contender over the rows of a file."""
    warnings.simplefilter("ignore")
    estimate = CONTENDERS[contender]()
    rows = np.load(path)
    report(lambda: lambda: estimate(rows), lambda: estimate(rows[:300].copy()))


if __name__ == "__main__":
    main(*sys.argv[1:])
