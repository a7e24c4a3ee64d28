"""One more question to a model: to the store, or to the model again as papers' scripts do.

The script pads to the longest, collects hidden states in lists, scales every row to norm 1, and
computes the average cosine and the singular values of every layer in memory. The store is asked
for the same metrics of the population that was not measured yet.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from analysis.compute import measure
from benchmarks import capture_contenders as contenders
from benchmarks.figures import Figure
from flows.capture import Tokens
from flows.capture.weights import LoadedModel
from store.metrics import read_metrics
from store.repository import Repository

METRICS = ("average_cosine", "svd_anisotropy")


def measure_again(*, quick: bool) -> list[Figure]:
    """Measure every figure.

    Args:
        quick: A tenth of the text, where no bar is held.
    """
    loaded, tokens = contenders.load(), contenders.text(80 if quick else 800)
    with tempfile.TemporaryDirectory() as folder:
        contenders.stored(loaded, tokens, Path(folder))
        uri = f"{folder}/store"
        ask(uri, "all")  # imports, compiles, and finds the others' results there
        ours, theirs = timed(lambda: ask(uri, "unit")), timed(lambda: run_again(loaded, tokens))
        results = read_metrics(Repository.open(uri), "corpus/model")
        assert results is not None
        found = results["svd_anisotropy"].sel(population="unit").isel(step=0).values
    expected = run_again(loaded, tokens)
    worst = float(np.abs(found / expected - 1).max())
    about = f"the model again, {len(tokens):,} tokens of a BERT of MiniLM's size"
    bar = None if quick else 20.0
    return [
        Figure("one more population: wall time", theirs[0] / ours[0], "×", bar, against=about),
        Figure("one more population: processor time", theirs[1] / ours[1], "×", against=about),
        Figure("one more population: difference", worst, "relative", 1e-3, "at most", about),
    ]


def ask(uri: str, population: str) -> None:
    """Measure one population of what is stored."""
    measure(uri, "corpus/model", metrics=METRICS, populations=[population])


def run_again(loaded: LoadedModel, tokens: Tokens) -> list[float]:
    """Run the model, and return the SVD anisotropy of the unit rows of each layer."""
    shares = []
    for rows in contenders.hidden_states(loaded, tokens):
        units = torch.nn.functional.normalize(rows, dim=-1)
        float(((units.sum(0) ** 2).sum() - len(units)) / (len(units) * (len(units) - 1)))
        values = torch.linalg.svdvals(units - units.mean(0)).double()
        shares.append(float(values[0] ** 2 / (values**2).sum()))
    return shares


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return the wall and the processor seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu
