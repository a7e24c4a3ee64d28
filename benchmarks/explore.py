"""How long a browser waits for the explorer of a big store.

    python benchmarks/explore.py [--json] [--quick]

The store holds 20 models of 150 steps and 13 layers, with one metric of all of them. The page is
asked for in another process than the server's, by a plain request, and by Chromium where it is
installed: until the curves are drawn. Filling the store takes the most of its minutes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
import urllib.request
from multiprocessing.connection import Connection
from pathlib import Path

os.environ["ICECHUNK_NO_LOGS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import xarray as xr

from analysis.boxes import RESIDUAL
from analysis.choose import make_plan
from analysis.work import definitions_of
from benchmarks.activations import CORPUS
from benchmarks.figures import Figure, progress, show
from benchmarks.store_open import fill_blank
from store.metrics import write_metrics
from store.repository import Repository

LAYERS = 13
POPULATIONS = ["all", "content", "typical", "unit"]


def fill(folder: Path, models: int, steps: int) -> str:
    """Make ``models`` times ``steps`` checkpoints that hold nothing, and a metric of each."""
    plan = make_plan(["average_cosine"], POPULATIONS, labelled=True)
    for number in range(models):
        fill_blank(folder, f"model-{number}", steps, LAYERS)
        repository = Repository.open(folder)
        write_metrics(
            repository,
            f"{CORPUS.name}/model-{number}",
            results(steps),
            snapshot=repository.snapshot_id(),
            definitions=definitions_of(plan, RESIDUAL),
        )
        progress(f"filled model {number + 1} of {models}")
    return Repository.open(folder).uri


def results(steps: int) -> xr.Dataset:
    """Return a metric (step, layer, population)."""
    shape = (steps, LAYERS, len(POPULATIONS))
    labels = {"step": range(steps), "layer": range(LAYERS), "population": POPULATIONS}
    values = np.random.default_rng(0).random(shape)
    return xr.Dataset({"average_cosine": (tuple(labels), values)}, labels)


def serve(uri: str, told: Connection) -> None:
    """Serve the explorer, and tell the port."""
    from flows.explore.server import make_server

    server = make_server(uri)
    server.start()
    told.send(server.port)
    server.io_loop.start()


def wait_for_page(port: int) -> float:
    """Return the seconds until the page has come."""
    started = time.perf_counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
        answer.read()
    return time.perf_counter() - started


DRAWN = "!!window.Bokeh && Bokeh.documents.length > 0 && Bokeh.documents[0].is_idle"


def wait_for_plot(port: int, folder: Path, times: int) -> list[float]:
    """Return the seconds until Chromium has drawn the curves, none where it is not installed."""
    from conftest import running

    executable = shutil.which("chromium")
    if executable is None:
        progress("no chromium: how long it takes to draw is not measured")
        return []
    took = []
    with running(executable, folder) as browser:
        for _ in range(times):
            started = time.perf_counter()
            browser.open(f"http://127.0.0.1:{port}/", drawn=DRAWN)
            browser.settle()
            took.append(time.perf_counter() - started)
            progress(f"drawn in {took[-1]:.2f} s")
    return took


def main() -> int:
    """Measure, print, and return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="3 models of 10 steps")
    arguments = parser.parse_args()
    models, steps = (3, 10) if arguments.quick else (20, 150)
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(dir=".") as folder:
        uri = fill(Path(folder) / "store", models, steps)
        ours, theirs = spawn.Pipe()
        server = spawn.Process(target=serve, args=(uri, theirs))
        server.start()
        try:
            port = ours.recv()
            first, *later = (wait_for_page(port) for _ in range(4))
            progress(f"page: first {first:.2f} s, again {statistics.median(later):.2f} s")
            drawn = wait_for_plot(port, Path(folder) / "profile", 3)
        finally:
            server.terminate()
            server.join()
    label = f"{models} models × {steps} steps"
    figures = [
        Figure(f"page of {label}, first", first, "s", 3.0, "at most", "the bar"),
        Figure(f"page of {label}, again", statistics.median(later), "s", 3.0, "at most", "the bar"),
    ]
    if drawn:
        median = statistics.median(drawn)
        figures.append(Figure(f"drawn, {label}", median, "s", 3.0, "at most", "the bar"))
    show(figures, as_json=arguments.json)
    return int(any(figure.holds is False for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
