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


HEAPS = """
import ctypes, threading, sys
from store.freed_memory import share_heaps

share_heaps(2)
done = threading.Barrier(9)
take = ctypes.CDLL(None).malloc
take.argtypes, take.restype = [ctypes.c_size_t], ctypes.c_void_p
heaps = set()

def work():
    heaps.add(take(100_000) >> 26)  # heaps other than the first begin at multiples of 64 MiB
    done.wait()

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
done.wait()
print(len(heaps))
"""


def heaps(**environment):
    """Return in how many stretches of 64 MiB eight threads find memory."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    run = subprocess.run(
        [sys.executable, "-c", HEAPS],
        env=plain | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(run.stdout)


def test_threads_share_a_few_heaps_unless_the_environment_says_otherwise():
    assert heaps() <= 2
    assert heaps(MALLOC_ARENA_MAX="16") > 4
