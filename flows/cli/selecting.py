"""The option ``--select``: labels along the dimensions that only some metrics have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import click

from flows.cli.options import Function


class Picked(click.ParamType[tuple[str, tuple[str, ...]]]):
    """``head=0,3`` as a name and labels."""

    name = "labels"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, tuple[str, ...]]:
        """Parse the text of the option."""
        dim, equals, rest = str(value).partition("=")
        labels = tuple(part.strip() for part in rest.split(",") if part.strip())
        if not (dim.strip() and equals and labels):
            self.fail(f"{value!r}: expected NAME=LABEL, as in head=0 or head=0,3", param, ctx)
        return dim.strip(), labels


select_option: Final[Callable[[Function], Function]] = click.option(
    "--select",
    "picked",
    type=Picked(),
    multiple=True,
    metavar="NAME=A,B",
    help="Only these labels along another dimension that the metric has, such as head=0,3 or"
    " order=2; may be given again.",
)
