"""Runs one flow run for a Prefect worker, in place of ``python -m prefect.engine``.

The worker's verdict on a run is the exit code of its process, which Icechunk's threads can turn
into an abort after all the work is done: see :mod:`flows.ending`.
"""

from __future__ import annotations

import runpy

from flows.ending import ended_before_finalization

if __name__ == "__main__":
    with ended_before_finalization():
        runpy.run_module("prefect.engine", run_name="__main__", alter_sys=True)
