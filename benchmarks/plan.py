"""How near `actlas ingest --plan` comes to what then happens: time and bytes, planned over actual.

    python benchmarks/plan.py [--json] [--quick]

Both are commands of their own, as a user types them, each time on a new store; figures are medians
of the ratios of a plan and the ingest right after it, less what starting a bare command takes.
Needs the models that `make demo` installs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.figures import Figure, show
from flows.corpora import add_ids, add_texts
from flows.demo.materials import encoder_directory, plays

BAR = 0.15
"""Largest deviation from the actual value, relative to it."""

DECODER = "random:gpt2:n_layer=8,n_embd=256,n_head=8,vocab_size=8192"


def main() -> int:
    """Measure, print, and return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="less text, one round")
    arguments = parser.parse_args()
    sequences, rounds = (200, 1) if arguments.quick else (1500, 3)
    figures: list[Figure] = []
    for name, model in (("MiniLM", str(encoder_directory())), ("a small decoder", DECODER)):
        ratios = [_ratios(model, sequences) for _ in range(rounds)]
        section: list[Figure] = []
        for number, quantity in enumerate(("time", "bytes")):
            ratio = statistics.median(pair[number] for pair in ratios)
            seconds = statistics.median(pair[2] for pair in ratios)
            against = f"planned / actual ({seconds:.1f} s)"
            section += [
                Figure(f"{quantity} of {name}", ratio, "x", None, against=against),
                Figure(f"{quantity} of {name}, off by", abs(ratio - 1), "", BAR, "at most"),
            ]
        figures += section
        if not arguments.json:
            show(section, as_json=False)
    if arguments.json:
        show(figures, as_json=True)
    return int(any(figure.holds is False for figure in figures))


def _ratios(model: str, sequences: int) -> tuple[float, float, float]:
    """Plan, then ingest; return planned over actual time, and bytes, and the actual seconds."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"{folder}/store"
        if model == DECODER:
            rng = np.random.default_rng(0)
            lengths = rng.integers(20, 256, sequences)
            add_ids(store, "corpus", [rng.integers(0, 8192, length) for length in lengths])
        else:
            add_texts(store, "corpus", plays(), max_sequences=sequences)
        command = ["ingest", model, "--corpus", "corpus", "--store", store, "--json"]
        plan, _ = _actlas(*command, "--plan")
        _, bare = _actlas("ls", "--store", store, "--json")
        (done,), whole = _actlas(*command)
    seconds = whole - bare
    return plan["seconds"] / seconds, plan["stored_bytes"] / done["stored_bytes"], seconds


def _actlas(*arguments: str) -> tuple[dict | list, float]:
    """Run a command in a process of its own; return what it printed, and its seconds."""
    script = "import sys; from flows.cli import main; main(sys.argv[1:])"
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout), time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
