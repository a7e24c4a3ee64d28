"""One measurement a process: a contender runs alone, warmed up, and reports on itself."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.memory import forget_peak, peak, resident

THREADS = min(2, os.cpu_count() or 1)


@dataclass(frozen=True)
class Run:
    """What one run of a contender cost and found."""

    wall: float
    cpu: float
    peak_mib: float
    value: list[float]


def report(
    prepare: Callable[[], Callable[[], Sequence[float]]], warm_up: Callable[[], object]
) -> None:
    """Warm up, time the work, and write the result to standard output as JSON.

    Args:
        prepare: Loads the data and returns the work to be timed.
        warm_up: The same work on a little data, so that nothing is imported or compiled later.
    """
    work = prepare()
    warm_up()
    forget_peak()
    before = resident()
    wall, cpu = time.perf_counter(), time.process_time()
    value = [float(number) for number in work()]
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    sys.stdout.write(json.dumps([wall, cpu, (peak() - before) / 2**20, value]))


def run(
    script: Path,
    contender: str,
    data: Path,
    python: str = sys.executable,
    *,
    threads: int = THREADS,
) -> Run | None:
    """Run a contender in a process of its own; None where it is not installed there."""
    limits = {f"{library}_NUM_THREADS": str(threads) for library in ("OMP", "OPENBLAS", "MKL")}
    done = subprocess.run(
        [python, str(script), contender, str(data)],
        capture_output=True,
        text=True,
        env=os.environ | limits,
        check=False,
    )
    if "ModuleNotFoundError" in done.stderr:
        sys.stderr.write(f"{contender} is not installed in {python}: its bars are left out\n")
        return None
    if done.returncode:
        raise RuntimeError(f"{contender} failed:\n{done.stderr}")
    wall, cpu, peak_mib, value = json.loads(done.stdout.splitlines()[-1])
    sys.stderr.write(f"{contender}, {data.stem}: {wall:.3g} s, {cpu:.3g} s of processor time\n")
    return Run(wall, cpu, peak_mib, value)


def interleaved(
    contenders: Sequence[str], once: Callable[[str], Run | None], repetitions: int
) -> Mapping[str, list[Run]]:
    """Run every contender once, then all again, so that a busy machine slows them alike."""
    runs: dict[str, list[Run]] = {name: [] for name in contenders}
    for _ in range(repetitions):
        for name in contenders:
            measured = once(name)
            if measured is not None:
                runs[name].append(measured)
    return runs


def ratio(rival: Sequence[Run], ours: Sequence[Run], *, of: str = "cpu") -> float:
    """Return the median over repetitions of the rival's cost in units of ours."""
    pairs = zip(rival, ours, strict=True)
    return statistics.median(getattr(theirs, of) / getattr(own, of) for theirs, own in pairs)
