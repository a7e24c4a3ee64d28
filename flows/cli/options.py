"""Options and value types that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., object])

ALL: Final = "all"


def examples(*lines: str) -> str:
    """Return the end of a command's help: examples as they are typed, one a line."""
    # The backspace tells click to leave the lines as they are.
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))


class NumberList(click.ParamType[tuple[int, ...] | None]):
    """``0,1,2`` as numbers, or ``all`` as None."""

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
            numbers = tuple(int(part) for part in value.split(",") if part.strip())
        except ValueError:
            self.fail(f"{value!r} is neither 'all' nor whole numbers such as 0,1,2", param, ctx)
        if not numbers or min(numbers) < 0:
            self.fail(f"{value!r} must name at least one number, and none below 0", param, ctx)
        return tuple(sorted(set(numbers)))


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


store_option: Final[Callable[[Function], Function]] = click.option(
    "--store",
    envvar="ACTLAS_STORE",
    default="./activations",
    show_default=True,
    show_envvar=True,
    metavar="URI",
    help="The activation store.",
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
    help="Only these layers; 0 is the embedding output.  [default: all]",
)
