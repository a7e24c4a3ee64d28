"""Peak memory of an ingest does not grow with the corpus."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from flows.corpora import add_ids

MODEL = "random:gpt2:n_embd=512,n_layer=1,n_head=4,vocab_size=100,n_positions=128"

INGEST = f"""
from flows.capture.checkpoints import find_checkpoints
from flows.ingestion import ingest_checkpoint
from flows.running import CaptureOptions
# Small batches make small windows, so that the small corpus, too, fills every stage.
options = CaptureOptions(batch_tokens=256)
ingest_checkpoint(uri, find_checkpoints({MODEL!r}, name="m")[0], "ids", options=options)
"""

# Not ru_maxrss, which begins with that of the process that started this one.
PEAK = """
lines = open("/proc/self/status").read().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("VmHWM:")))
"""


def peak(code: str, uri: str) -> int:
    """Return the peak resident memory of a process that runs some code, in KiB."""
    program = f"uri = {uri!r}\n{code}\n{PEAK}"
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    environment = {**plain, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    return int(done.stdout.split()[-1])


@pytest.mark.slow
def test_four_times_the_corpus_costs_no_more_memory(tmp_path: Path) -> None:
    peaks = []
    draw = np.random.default_rng(0)
    # Of other lengths each time, as texts are: what a batch frees rarely suits the next one.
    lengths = draw.integers(16, 129, 192)
    for name, times in (("small", 1), ("large", 4)):
        uri = str(tmp_path / name)
        ids = [draw.integers(0, 100, length) for length in np.tile(lengths, times)]
        add_ids(uri, "ids", ids)
        peaks.append(peak(INGEST, uri))
    small, large = peaks
    # 4 × 13,800 tokens of (2 layers + final norm) × 512 float32 values are 320 MiB.
    assert large < 1.1 * small
