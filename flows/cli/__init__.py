"""The command line: ``actlas``, thin over the functions that flows and notebooks call."""

from flows.cli.group import actlas, main

__all__ = ["actlas", "main"]
