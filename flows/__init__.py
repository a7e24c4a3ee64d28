"""What runs things: capture, ingestion, measurement, the command line and the Prefect flows."""

import os

from store.freed_memory import share_heaps

# Threads of GNU OpenMP spin while they wait for each other, unless this is set when torch is first
# imported. On a machine that others use, too, a step of training then takes 15 times the CPU.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# The model takes memory from one, the threads that write from the other.
share_heaps(2)
