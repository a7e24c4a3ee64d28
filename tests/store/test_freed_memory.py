import ctypes
import os
import subprocess
import sys

import pytest

from store.freed_memory import ENVIRONMENT

CHUNKS = """
import resource
import numpy as np
from store.freed_memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        chunks = [np.ones(3 << 20, np.uint8) for _ in range(6)]
        del chunks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(faults())
keep_freed_memory()
faults()
print(faults())
"""


def page_faults(**environment):
    """Return the page faults of 180 MiB of chunks, by default and with freed memory kept."""
    plain = {name: value for name, value in os.environ.items() if name not in ENVIRONMENT}
    run = subprocess.run(
        [sys.executable, "-c", CHUNKS],
        env=plain | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return map(int, run.stdout.split())


pytestmark = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc"
)


def test_chunks_do_not_fault_in_memory_that_was_just_freed():
    before, after = page_faults()
    # 6 × 3 MiB are more than the 6 MiB that glibc keeps by then: 10 × 6 × 768 pages, or none.
    assert before > 20_000
    assert after < 2_000


def test_what_the_environment_says_stays():
    _, after = page_faults(MALLOC_TRIM_THRESHOLD_="65536")
    assert after > 20_000
