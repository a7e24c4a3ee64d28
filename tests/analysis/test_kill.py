"""A run that is killed keeps what it had, and the next one goes on from there."""

from __future__ import annotations

import signal
import subprocess
import sys

from analysis.compute import measure
from store.metrics import read_metrics

SCRIPT = """
import sys, time
import analysis.compute

analysis.compute.COMMIT_SECONDS = 0.0
analysis.compute.BATCH_BYTES = 1

def slow(statistics):
    '''Number of rows, slowly.'''
    time.sleep(0.05)
    return float(statistics.n)

def tell(done, total):
    print(done, total, flush=True)

analysis.compute.measure(sys.argv[1], sys.argv[2], metrics=["average_cosine", slow], progress=tell)
"""


def test_what_was_committed_before_a_kill_is_not_computed_again(tmp_path, make_stored) -> None:
    stored = make_stored(str(tmp_path / "store"), steps=(0, 10, 20))
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "store"), stored.path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert [running.stdout.readline() for _ in range(2)] == ["1 9\n", "1 9\n"]
        running.kill()
        assert running.wait() == -signal.SIGKILL
    found = read_metrics(stored.repository, stored.path)
    assert found is not None
    done = int(found["average_cosine"].notnull().sum())
    assert 2 * 4 <= done < 9 * 4
    report = measure(stored.repository, stored.path, metrics=["average_cosine"])
    assert (report.computed, report.up_to_date) == (36 - done, done)
    whole = read_metrics(stored.repository, stored.path)
    assert whole is not None
    assert bool(whole["average_cosine"].notnull().all())
