"""Run the demo into ``./demo``: ``python -m flows.demo``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from flows.demo.materials import MaterialError
from flows.demo.stages import run_demo

if __name__ == "__main__":
    try:
        run_demo(Path("demo"))
    except MaterialError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
