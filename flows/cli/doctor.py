"""``actlas doctor``: whether everything is there that actlas needs."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Final

import click

from flows.cli.configuration import unknown_variables
from flows.cli.options import examples, json_option, store_option
from flows.console import print_json, print_table

_COLOURS: Final = {"good": "green", "notice": "yellow", "bad": "red"}


@click.command(
    short_help="Say whether actlas can work here.",
    epilog=examples("actlas doctor", "actlas doctor --json"),
)
@store_option
@json_option
def doctor(store: str, as_json: bool) -> None:
    """Look at versions, BLAS, GPU, disk, settings and the store; fail if one of them is bad.

    A file of 64 MiB is written beside the store, and is gone afterwards. Send the output with
    any report of a fault.
    """
    from flows.doctor import examine

    root = click.get_current_context().find_root().command
    unknown = unknown_variables(sorted(os.environ), root) if isinstance(root, click.Group) else []
    findings = examine(store, unknown)
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        rows = [(one.subject, one.verdict, one.detail) for one in findings]
        print_table(("what", "", "found"), rows, colours=_COLOURS)
    if any(finding.verdict == "bad" for finding in findings):
        raise click.exceptions.Exit(1)
