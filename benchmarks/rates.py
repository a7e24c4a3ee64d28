"""What storing, reading and measuring cost on one core: the rates that docs/SCALE.md multiplies.

    python benchmarks/rates.py [--json] [--quick] [--width WIDTH...]

Processor seconds (s) with one BLAS thread, not wall time: what else runs on the machine matters
less. Storing and reading have a process of their own for each width, and the memory of the second
is read at the end. Metrics are those of one slab, 16,384 tokens of one layer of one step.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ["ICECHUNK_NO_LOGS"] = "1"
# Python puts the folder of this file first, and it has modules named like the packages.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from analysis.blas import one_blas_thread
from analysis.choose import make_plan
from analysis.evaluate import measure_layer
from analysis.heads import SlabRows
from analysis.metrics import METRICS
from analysis.plan import Plan
from analysis.tasks import stored_table
from benchmarks.figures import Figure, show
from store.corpora import CorpusSpec, create_corpus
from store.create import ArraySpec, create_model
from store.layout import chunk_rows
from store.repository import Repository
from store.schema import DIM, LAYER, SITES, TOKEN, TOKEN_COORDINATES
from store.slab import Slab, slabs
from store.write import StepWriter, reserve_step

SEQUENCE = 128
LAYERS = 2
PATH = "text/model"


Rates = Callable[[str, int, int], list[Figure]]


def tokens(count: int) -> dict[str, np.ndarray]:
    """Return the coordinates of ``count`` tokens in sequences of 128."""
    columns = {name: np.zeros(count, item.dtype) for name, item in TOKEN_COORDINATES.items()}
    columns["token_id"] = np.arange(count) % 50_000
    columns["sequence"] = np.arange(count) // SEQUENCE
    columns["position"] = np.arange(count) % SEQUENCE
    return columns


def activations(count: int, width: int, seed: int) -> np.ndarray:
    """Return rows (token, dim) with a power-law spectrum and a bfloat16 model's precision."""
    rng = np.random.default_rng(seed)
    scales = np.arange(1, width + 1, dtype=np.float32) ** -0.5
    values = rng.standard_normal((count, width), dtype=np.float32) * scales + np.float32(0.1)
    return (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def prepare(
    folder: str, width: int, count: int, layers: int = LAYERS, *, rows: int | None = None
) -> Repository:
    """Create a store with room for one step of a model, in chunks of so many rows."""
    repository = Repository.create(folder)
    corpus = CorpusSpec("text", "text", {"unit": "tokens", "size": SEQUENCE}, 0, "none")
    create_corpus(repository, corpus, texts=["text"], sources=["none"], source_starts=[0])
    sizes = {LAYER: layers, TOKEN: count, DIM: width}
    rows = rows or chunk_rows(width, count)
    attributes = {"n_blocks": layers - 1, "width": width, "chunk_rows": rows, "causal": True}
    create_model(
        repository,
        "text",
        "model",
        arrays=[ArraySpec(SITES["residual"], sizes)],
        tokens=tokens(count),
        attributes=attributes,
    )
    return repository


def write(repository: Repository, values: np.ndarray) -> None:
    """Store one step, every layer the same, and commit it."""
    write_layers(repository, values, LAYERS)


def write_layers(repository: Repository, values: np.ndarray, layers: int) -> None:
    """Store one step of as many layers as there are, every one the same, and commit it."""
    writer = reserve_step(repository, PATH, 0, identity={"weights_sha256": "none"})
    assert isinstance(writer, StepWriter)
    with writer:
        for start in range(0, len(values), 4 * writer.chunk_rows):
            block = values[start : start + 4 * writer.chunk_rows]
            writer.write_block("residual", start, np.stack([block] * layers))
        writer.commit(provenance={"weights_sha256": "none"})


def seconds_of(work: Callable[[], object]) -> float:
    """Return the processor seconds of one call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def plans(errors: bool) -> Iterator[tuple[str, Plan]]:
    """The two kinds of metrics, with the populations that a run has unless told otherwise."""
    for kind, needs in (
        ("moments", ("directions", "moments", "spectrum")),
        ("neighbours", ("neighbors",)),
    ):
        names = [name for name, metric in METRICS.items() if metric.needs in needs]
        yield kind, make_plan(names, None, labelled=True, errors=errors)


def storing_rates(folder: str, width: int, count: int) -> list[Figure]:
    """Store ``count`` tokens of one width (dim) in each of two layers."""
    repository = prepare(folder, width, count)
    values = activations(count, width, seed=0)
    gigabytes = LAYERS * values.nbytes / 1e9
    seconds = seconds_of(lambda: write(repository, values))
    size = sum(path.stat().st_size for path in Path(folder, "chunks").iterdir())
    return [
        Figure(f"write, width {width}", seconds / gigabytes, "s/GB"),
        Figure(f"compression, width {width}", gigabytes * 1e9 / size, "×"),
    ]


def reading_rates(folder: str, width: int, count: int) -> list[Figure]:
    """Read one layer, and measure it with every metric there is."""
    repository = Repository.open(folder)
    snapshot = repository.snapshot_id()
    slab = slabs(repository, PATH, snapshot=snapshot)[0]
    table = stored_table(slab.uri, slab.path, snapshot)
    gigabytes = count * width * 4 / 1e9
    figures = [Figure(f"read, width {width}", seconds_of(lambda: read(slab)) / gigabytes, "s/GB")]
    for errors in (False, True):
        for kind, plan in plans(errors):
            name = f"{kind}, with standard errors" if errors else kind
            seconds = seconds_of(lambda plan=plan: measure_layer(SlabRows(slab), table, plan))
            figures.append(Figure(f"{name}, width {width}", seconds, "s"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return [*figures, Figure(f"peak memory, width {width}", peak, "GiB")]


def read(slab: Slab) -> None:
    """Read a slab and keep nothing of it."""
    for _ in slab.blocks():
        pass


def compiled(rates: Rates, folder: str, width: int, count: int) -> list[Figure]:
    """Run both parts on little, so that no compilation is measured, then one of them for real."""
    with one_blas_thread():
        with tempfile.TemporaryDirectory() as little:
            storing_rates(little, 64, 1024)
            reading_rates(little, 64, 1024)
        return rates(folder, width, count)


def run(width: int, count: int) -> list[Figure]:
    """Measure one width, each part in a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    figures = []
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool,
    ):
        for rates in (storing_rates, reading_rates):
            figures += pool.submit(compiled, rates, folder, width, count).result()
    return figures


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="little of one small width")
    parser.add_argument("--width", type=int, nargs="+", default=[768, 2048, 4096])
    arguments = parser.parse_args()
    sizes = [(256, 2048)] if arguments.quick else [(width, 16384) for width in arguments.width]
    show([figure for size in sizes for figure in run(*size)], as_json=arguments.json)


if __name__ == "__main__":
    main()
