"""Where metrics are computed, and what each worker has: options of what computes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import click

from flows.cli.options import Function


class Bytes(click.ParamType[int]):
    """A size in memory, such as ``512MiB`` or ``1GB``."""

    name = "size"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Turn the text into a number of bytes."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kMGT]?i?)B?", value.strip())
        if match is None or not float(match[1]):
            self.fail(f"{value!r} is no size; expected one such as 512MiB or 1GB", param, ctx)
        base = 1024 if match[2].endswith("i") else 1000
        return int(float(match[1]) * base ** " kMGT".index(match[2][:1] or " "))


dask_option: Final[Callable[[Function], Function]] = click.option(
    "--dask",
    "scheduler",
    envvar="ACTLAS_DASK",
    default="threads",
    show_default=True,
    show_envvar=True,
    metavar="threads|local:N|slurm:FILE|k8s:FILE|ADDRESS",
    help="Where metrics are computed.",
)

memory_option: Final[Callable[[Function], Function]] = click.option(
    "--memory",
    type=Bytes(),
    metavar="SIZE",
    help="What each worker has, as 1GiB; what would need more is refused before it is read.",
)
