"""What capture costs beyond the model's own forward pass, and how exact it is.

    python benchmarks/capture.py [--json] [--quick]

Every way is run in many short rounds, each in its turn, so that a busy machine slows them alike;
figures are medians of the ratios within a round, with their quartiles. What a new store costs once
is spread over a corpus of 600 sequences; a round has as many as fill two chunks of a layer. Each
round is told as it ends. Less than four minutes on two cores that do nothing else, about one with
--quick.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import google_crc32c

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import capture_contenders as contenders
from benchmarks.figures import Figure, show
from benchmarks.rounds import Cost, Rounds, timed
from flows.capture import Tokens, find_checkpoints
from flows.capture.devices import dtype_named
from flows.capture.forward import capture
from flows.capture.guard import TOLERANCE, check_batching
from flows.capture.sites import available_sites
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
_CORPUS_SEQUENCES = 600
_FEW_SEQUENCES = 20
_NAIVE_ROUNDS = 3
_MIB = 2**20


def main() -> int:
    """Measure, print, and return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="less text, fewer rounds")
    arguments = parser.parse_args()
    n_sequences, rounds = (146, 2) if arguments.quick else (263, 8)
    loaded, tokens = contenders.load(), contenders.text(n_sequences)
    tell(f"{n_sequences} sequences of {len(tokens):,} tokens, {rounds} rounds after a warm-up")
    figures = [
        *cost_figures(rounds_of(loaded, tokens, rounds)),
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


def once_seconds(loaded: LoadedModel, tokens: Tokens) -> float:
    """Return what a new store costs in processor time, however small the corpus."""
    stored, captured = (
        in_turn(contenders.CONTENDERS[name], loaded, tokens) for name in ("stored", "captured")
    )
    return stored.cpu - captured.cpu


def in_turn(contender: contenders.Contender, loaded: LoadedModel, tokens: Tokens) -> Cost:
    """Return what one way costs, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return timed(lambda: contender(loaded, tokens, Path(folder)))


def rounds_of(loaded: LoadedModel, tokens: Tokens, rounds: int) -> Rounds:
    """Run every way in its turn, forwards in one round and backwards in the next.

    The loop that most scripts have takes as long as all others together, and differs from them by
    more than any noise: it is run in a few rounds.
    """
    few = contenders.text(_FEW_SEQUENCES)
    for contender in contenders.CONTENDERS.values():
        in_turn(contender, loaded, few)
    measured: list[dict[str, Cost]] = []
    once: list[float] = []
    for number in range(rounds):
        once.append(once_seconds(loaded, few))
        names = [*contenders.CONTENDERS][:: 1 - 2 * (number % 2)]
        costs = {
            name: in_turn(contenders.CONTENDERS[name], loaded, tokens)
            for name in names
            if name != contenders.NAIVE or number < _NAIVE_ROUNDS
        }
        told = ", ".join(f"{name} {costs[name].cpu:.2f}" for name in sorted(costs))
        tell(f"round {number}: {told}, a new store {once[-1]:.2f} s of CPU")
        measured.append(costs)
    return Rounds(
        measured,
        once=statistics.median(once),
        once_for=contenders.STORING,
        share=tokens.n_sequences / _CORPUS_SEQUENCES,
    )


def cost_figures(rounds: Rounds) -> list[Figure]:
    """Compare the ways to run and to keep."""
    bare, lists = "bare forward pass, same batches", "padding, lists of hidden states, torch.save"
    against = "creating store, corpus and model, reserving and committing a step; in the ratios"
    return [
        Figure("CPU time once a store", rounds.once, "s", against=against),
        rounds.figure("capture, CPU time", "captured", "bare", against=bare),
        rounds.figure("capture and store by lz4, CPU time", "fast", "bare", 1.1, against=bare),
        rounds.figure("capture and store, CPU time", "stored", "bare", 1.2, against=bare),
        rounds.figure("capture and store, wall time", "stored", "bare", of="wall", against=bare),
        rounds.figure(
            "faster than lists and torch.save, CPU time",
            *(contenders.NAIVE, "stored", 1.8, "at least"),
            against=lists,
        ),
        rounds.figure(
            "faster than lists and torch.save, wall time",
            *(contenders.NAIVE, "stored"),
            of="wall",
            against=lists,
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
    """Measure the peak of storing, each corpus in a process of its own."""
    small, large = (300, 600) if quick else (500, 1500)
    peaks = {}
    figures = []
    for n_sequences, everywhere in ((small, False), (large, False), (small, True)):
        model, batch, peak = _memory(n_sequences, everywhere=everywhere)
        peaks[n_sequences, everywhere] = peak
        sites = "all sites" if everywhere else "residual"
        told = f"model of {model:.0f} MiB, batch of {batch:.0f} MiB, {n_sequences} sequences"
        tell(f"peak {peak:.0f} MiB, {sites}: {told}")
        name = f"memory beyond model and batch, {sites}"
        figures.append(Figure(name, peak - model - batch, "MiB", 300, "at most", told))
    growth = peaks[large, False] / peaks[small, False]
    against = f"{large} sequences against {small}"
    return [*figures, Figure("memory of a larger corpus", growth, "×", 1.1, "at most", against)]


def exactness_figures(tokens: Tokens) -> list[Figure]:
    """Compare batches with sequences alone, at every site."""
    figures = []
    for kind, source in FAMILIES.items():
        for dtype in ("float32", "bfloat16"):
            checkpoint = find_checkpoints(f"random:{source}")[0]
            loaded = load_model(
                checkpoint, device="cpu", dtype=dtype_named(dtype), attention="eager"
            )
            worst = check_batching(loaded, tokens, available_sites(loaded.stack))
            tell(f"{kind} in {loaded.source_dtype}: {worst:.1e}")
            name = f"largest deviation, {kind}, {loaded.source_dtype}"
            bar = TOLERANCE[loaded.source_dtype]
            against = "each sequence alone, all sites, relative to the row"
            figures.append(Figure(name, worst, "", bar, "at most", against))
    return figures


def _memory(n_sequences: int, *, everywhere: bool) -> list[float]:
    """Return the MiB of the model's process, of a batch, and of the peak."""
    command = [sys.executable, contenders.__file__, str(n_sequences)]
    done = subprocess.run(
        [*command, "--everywhere"] if everywhere else command,
        capture_output=True,
        text=True,
        check=True,
    )
    return [size / _MIB for size in json.loads(done.stdout.splitlines()[-1])]


if __name__ == "__main__":
    sys.exit(main())
