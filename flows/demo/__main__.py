"""Run the demo into ``./demo``: ``python -m flows.demo``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from flows.ending import ended_before_finalization

FOLDER = Path("demo")


def main() -> None:
    """Run the demo; errors end it with a sentence."""
    from analysis.errors import AnalysisError
    from flows.capture.errors import CaptureError
    from flows.demo.materials import MaterialError
    from flows.demo.stages import run_demo
    from flows.failures import FlowError
    from store.errors import StoreError

    try:
        run_demo(FOLDER)
    except (AnalysisError, CaptureError, FlowError, MaterialError, OSError, StoreError) as error:
        click.echo(f"Error: {error}", err=True)
        click.echo(
            f"What was done is kept: run `make demo` again, or delete {FOLDER}/ to start afresh.",
            err=True,
        )
        sys.exit(1)


if __name__ == "__main__":
    with ended_before_finalization():
        main()
