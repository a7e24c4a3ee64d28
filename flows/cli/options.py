"""Options and value types that several commands share."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., object])

ALL: Final = "all"

_UNITS: Final = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


def examples(*lines: str) -> str:
    """Return the end of a command's help: examples as they are typed, one a line."""
    # The backspace tells click to leave the lines as they are.
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))


def none_stored(corpus: str | None) -> str:
    """Say that there is no model, in the whole store or over one corpus, and what to do."""
    over = "" if corpus is None else f" over {corpus}"
    return f"No model is stored{over} yet. Next: actlas ingest MODEL --corpus {corpus or 'NAME'}"


_MOST_NUMBERS: Final = 1 << 20


class NumberList(click.ParamType[tuple[int, ...] | None]):
    """``0,1,2`` or ``0:3`` as numbers, or ``all`` as None."""

    name = "numbers"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...] | None:
        """Parse the text of the option."""
        if not isinstance(value, str):
            self.fail(f"{value!r} is not text", param, ctx)
        if value.strip() == ALL:
            return None
        try:
            parts = [_numbers(part) for part in value.split(",") if part.strip()]
        except ValueError:
            expected = "neither 'all' nor whole numbers such as 0,1,2, or 0:3 for the same"
            self.fail(f"{value!r} is {expected}", param, ctx)
        if any(len(part) > _MOST_NUMBERS for part in parts):
            self.fail(f"{value!r} is more than {_MOST_NUMBERS:,} numbers", param, ctx)
        numbers = [number for part in parts for number in part]
        if not numbers or min(numbers) < 0:
            self.fail(f"{value!r} must name at least one number, and none below 0", param, ctx)
        return tuple(sorted(set(numbers)))


def _numbers(part: str) -> range:
    """Return the numbers of ``3``, or of ``3:7``, which is 3 to 6."""
    first, colon, stop = part.partition(":")
    return range(int(first), int(stop)) if colon else range(int(first), int(first) + 1)


class NameList(click.ParamType[tuple[str, ...]]):
    """``residual,query`` as names."""

    name = "names"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Parse the text of the option."""
        if not isinstance(value, str):
            self.fail(f"{value!r} is not text", param, ctx)
        names = tuple(part.strip() for part in value.split(",") if part.strip())
        if not names:
            self.fail(f"{value!r} must name at least one, such as NAME or NAME,NAME", param, ctx)
        return tuple(dict.fromkeys(names))


class OutputFile(click.Path):
    """A file to write whose suffix says its format, refused before anything is read or computed.

    Args:
        suffixes: Those that it can have.
    """

    def __init__(self, *suffixes: str) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)
        self._suffixes = suffixes

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Path:
        """Return the path."""
        file = Path(os.fsdecode(super().convert(value, param, ctx)))
        if file.suffix.lower() not in self._suffixes:
            expected = ", ".join(self._suffixes)
            self.fail(
                f"{str(file)!r} says no format: expected a name ending in {expected}", param, ctx
            )
        return file


FIGURES: Final = (".png", ".pdf", ".svg")
"""Those of `analysis.figures`, which a help text must not import."""


class Age(click.ParamType[timedelta]):
    """``30d``, ``12h``, ``90m`` or ``30s`` as a time."""

    name = "age"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Parse the text of the option."""
        if isinstance(value, timedelta):
            return value
        match = re.fullmatch(r"(\d+)([dhms])", str(value).strip())
        if match is None:
            self.fail(
                f"{value!r} is no time: expected days, hours, minutes or seconds as 30d, 12h, 90m,"
                " 30s",
                param,
                ctx,
            )
        return timedelta(**{_UNITS[match[2]]: int(match[1])})


store_option: Final[Callable[[Function], Function]] = click.option(
    "--store",
    envvar="ACTLAS_STORE",
    default="./activations",
    show_default=True,
    show_envvar=True,
    metavar="URI",
    help="The activation store.",
)

settle_option: Final[Callable[[Function], Function]] = click.option(
    "--settle",
    type=Age(),
    default="30s",
    show_default=True,
    metavar="30s",
    help="Rest after which a checkpoint counts as written.",
)

json_option: Final[Callable[[Function], Function]] = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document for programs."
)

corpus_filter: Final[Callable[[Function], Function]] = click.option(
    "--corpus", metavar="NAME", help="Only this corpus.  [default: every corpus]"
)

models_filter: Final[Callable[[Function], Function]] = click.option(
    "--models",
    type=NameList(),
    metavar="A,B",
    help="Only these models, by the names `actlas ls` shows.  [default: every model]",
)

steps_filter: Final[Callable[[Function], Function]] = click.option(
    "--steps",
    type=NumberList(),
    metavar="0,1,…|all",
    help="Only these training steps.  [default: all]",
)

layers_filter: Final[Callable[[Function], Function]] = click.option(
    "--layers",
    type=NumberList(),
    metavar="0,1,…|all",
    help="Only these layers, and blocks of the same numbers: 0,4 or 0:3, which is 0 to 2; 0 is the"
    " embedding output.  [default: all]",
)

trust_option: Final[Callable[[Function], Function]] = click.option(
    "--trust-remote-code",
    "trusted",
    is_flag=True,
    help="Let Python code that comes with a checkpoint run; read it first.",
)


def _as_stored(_context: click.Context, _parameter: click.Parameter, name: str) -> str:
    """Return the name of a population as results have it: expressions with Python's spaces."""
    if name.isidentifier():
        return name
    from analysis.row_expressions import RowExpression

    return RowExpression.parse(name).text


population_option: Final[Callable[[Function], Function]] = click.option(
    "--population",
    default="content",
    show_default=True,
    callback=_as_stored,
    help="Rows that the values are about.",
)


@dataclass(frozen=True)
class Chosen:
    """Which models, and which part of each, a question is about; None for all.

    Attributes:
        corpus: Name of a corpus.
        models: Ids of models.
        steps: Training steps.
        layers: Layers.
    """

    corpus: str | None
    models: tuple[str, ...] | None
    steps: tuple[int, ...] | None
    layers: tuple[int, ...] | None


def complete_metric(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of metrics that begin as what was typed, for a shell."""
    from analysis.metrics import METRICS

    return [name for name in METRICS if name.startswith(incomplete)]


def selection_options(command: Callable[..., object]) -> Callable[..., object]:
    """Add ``--corpus``, ``--models``, ``--steps`` and ``--layers``, taken as one ``chosen``."""

    @corpus_filter
    @models_filter
    @steps_filter
    @layers_filter
    @functools.wraps(command)
    def with_selection(
        *,
        corpus: str | None,
        models: tuple[str, ...] | None,
        steps: tuple[int, ...] | None,
        layers: tuple[int, ...] | None,
        **others: object,
    ) -> object:
        return command(chosen=Chosen(corpus, models, steps, layers), **others)

    return with_selection


def sample_options(size: int) -> Callable[[Function], Function]:
    """Return what adds ``--sample`` and ``--seed``: among which tokens neighbours are sought."""

    def add(command: Function) -> Function:
        sample = click.option(
            "--sample",
            type=click.IntRange(min=10),
            default=size,
            show_default=True,
            help="Tokens among which neighbours are sought.",
        )
        seed = click.option(
            "--seed", type=int, default=0, show_default=True, help="Seed of that sample."
        )
        return sample(seed(command))

    return add
