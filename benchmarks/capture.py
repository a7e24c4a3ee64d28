"""What capture costs beyond the model's own forward pass, and how exact it is.

    python benchmarks/capture.py [--json] [--quick]

Every way is run in rounds, each in its turn, so that a busy machine slows them alike; figures
are medians of the ratios within a round. Each way is told as it ends. Under four minutes on two
cores that do nothing else, under one with --quick.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import capture_contenders as contenders
from benchmarks.figures import Figure, show
from flows.capture import Tokens, find_checkpoints
from flows.capture.forward import batch_size, capture
from flows.capture.guard import TOLERANCE, check_batching
from flows.capture.sites import available_sites, site_shapes
from flows.capture.weights import LoadedModel, load_model

FAMILIES = {
    "encoder": "bert:num_hidden_layers=6,hidden_size=192,num_attention_heads=6,vocab_size=30522",
    "decoder": "gpt2:n_layer=6,n_embd=192,n_head=6,vocab_size=30522",
    "rotary decoder": (
        "llama:num_hidden_layers=6,hidden_size=192,num_attention_heads=6,num_key_value_heads=2,"
        "intermediate_size=512,vocab_size=30522"
    ),
}


_GUARDED_SEQUENCES = 1000


@dataclass(frozen=True)
class Cost:
    """Seconds of one way in one round."""

    wall: float
    cpu: float


def main() -> int:
    """Measure, print, and return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="less text, fewer rounds")
    arguments = parser.parse_args()
    n_sequences, rounds = (40, 1) if arguments.quick else (240, 2)
    loaded, tokens = contenders.load(), contenders.text(n_sequences)
    tell(f"{n_sequences} sequences of {len(tokens):,} tokens, {rounds} rounds after a warm-up")
    figures = [
        *cost_figures(loaded, tokens, rounds),
        *guard_figures(loaded, tokens),
        *memory_figures(quick=arguments.quick),
        *exactness_figures(tokens),
    ]
    show(figures, as_json=arguments.json)
    return int(any(figure.holds is False for figure in figures))


def tell(what: str) -> None:
    """Say how far it is, without standing in the way of the figures."""
    sys.stderr.write(f"{what}\n")
    sys.stderr.flush()


def cost_figures(loaded: LoadedModel, tokens: Tokens, rounds: int) -> list[Figure]:
    """Compare the ways to run and to keep."""
    costs: dict[str, list[Cost]] = {name: [] for name in contenders.CONTENDERS}
    for number in range(rounds + 1):
        for name, contender in contenders.CONTENDERS.items():
            with tempfile.TemporaryDirectory() as folder:
                cost = timed(lambda: contender(loaded, tokens, Path(folder)))  # noqa: B023
            tell(f"round {number}: {name:9s} {cost.cpu:6.2f} s of CPU, {cost.wall:6.2f} s")
            if number > 0:  # The first round warms up.
                costs[name].append(cost)

    def ratio(name: str, base: str, of: str) -> float:
        pairs = zip(costs[name], costs[base], strict=True)
        return statistics.median(getattr(one, of) / getattr(other, of) for one, other in pairs)

    bare = "bare forward pass, same batches"
    return [
        Figure("capture, CPU time", ratio("captured", "bare", "cpu"), "×", against=bare),
        Figure(
            "capture and store by lz4, CPU time",
            ratio("fast", "bare", "cpu"),
            "×",
            1.1,
            "at most",
            bare,
        ),
        Figure(
            "capture and store, CPU time", ratio("stored", "bare", "cpu"), "×", 1.2, "at most", bare
        ),
        Figure("capture and store, wall time", ratio("stored", "bare", "wall"), "×", against=bare),
        Figure(
            "faster than lists and torch.save, CPU time",
            ratio("naive", "stored", "cpu"),
            "×",
            1.8,
            against="padding to the longest, output_hidden_states, lists, torch.save",
        ),
        Figure(
            "faster than lists and torch.save, wall time",
            ratio("naive", "stored", "wall"),
            "×",
            against="the same",
        ),
    ]


def guard_figures(loaded: LoadedModel, tokens: Tokens) -> list[Figure]:
    """Measure what the guard, which looks at three sequences, and the checksums add.

    The guard costs the same whatever the corpus: its share is that of an ingest of a thousand
    sequences, whose other costs are those of the ones measured, times as many.
    """
    with tempfile.TemporaryDirectory() as folder:
        whole = timed(lambda: contenders.stored(loaded, tokens, Path(folder)))
    guard = timed(lambda: check_batching(loaded, tokens, ["residual"]))
    blocks = [
        block.values["residual"] for block in capture(loaded, tokens, ["residual"], block_rows=4096)
    ]
    checksums = timed(lambda: [google_crc32c.value(layer.tobytes()) for b in blocks for layer in b])
    tell(f"guard {guard.cpu:.2f} s, checksums {checksums.cpu:.3f} s, ingest {whole.cpu:.2f} s")
    times = _GUARDED_SEQUENCES / tokens.n_sequences
    share = 100 * (guard.cpu + times * checksums.cpu) / (guard.cpu + times * whole.cpu)
    against = f"of the CPU time of an ingest of {_GUARDED_SEQUENCES} sequences"
    return [Figure("guard and checksums", share, "%", 3, "at most", against)]


def memory_figures(*, quick: bool) -> list[Figure]:
    """Measure peak memory, each corpus in a process of its own."""
    small, large = (40, 120) if quick else (100, 400)
    before, peak = _peaks(small)
    _, larger = _peaks(large)
    tell(f"peak memory {peak:.0f} and {larger:.0f} MiB, {before:.0f} MiB with the model alone")
    loaded = contenders.load()
    (shape,) = site_shapes(loaded.stack, ["residual"])
    batch = batch_size(loaded, ["residual"]) * shape.bytes_per_token / 2**20
    return [
        Figure(
            "memory beyond the model and a batch",
            larger - before - batch,
            "MiB",
            300,
            "at most",
            f"{large} sequences",
        ),
        Figure(
            "memory of a larger corpus",
            larger / peak,
            "×",
            1.1,
            "at most",
            f"{large} sequences against {small}",
        ),
    ]


def exactness_figures(tokens: Tokens) -> list[Figure]:
    """Compare batches with sequences alone, at every site."""
    figures = []
    for kind, source in FAMILIES.items():
        for dtype in (torch.float32, torch.bfloat16):
            checkpoint = find_checkpoints(f"random:{source}")[0]
            loaded = load_model(checkpoint, device="cpu", dtype=dtype, attention="eager")
            worst = check_batching(loaded, tokens, available_sites(loaded.stack))
            tell(f"{kind} in {loaded.source_dtype}: {worst:.1e}")
            name = f"largest deviation, {kind}, {loaded.source_dtype}"
            bar = TOLERANCE[loaded.source_dtype]
            against = "each sequence alone, all sites, relative to the row"
            figures.append(Figure(name, worst, "", bar, "at most", against))
    return figures


def timed(work: Callable[[], object]) -> Cost:
    """Run something and return what it cost."""
    wall, cpu = time.perf_counter(), _cpu()
    work()
    return Cost(time.perf_counter() - wall, _cpu() - cpu)


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _peaks(n_sequences: int) -> tuple[float, float]:
    script = Path(contenders.__file__)
    done = subprocess.run(
        [sys.executable, str(script), str(n_sequences)], capture_output=True, text=True, check=True
    )
    before, peak = json.loads(done.stdout.splitlines()[-1])
    return before, peak


if __name__ == "__main__":
    sys.exit(main())
