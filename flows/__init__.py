"""What runs things: capture, ingestion, measurement, the command line and the Prefect flows."""

import os

# Threads of GNU OpenMP spin while they wait for each other, unless this is set when torch is first
# imported. On a machine that others use, too, a step of training then takes 15 times the CPU.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
