"""What commands write: tables and JSON to standard output, progress to a terminal."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import click

WIDE = 200
"""Columns of a table that goes to a file or a pipe, where no terminal sets the width."""


ONE_LOUDNESS: Final = "Give either --quiet or --verbose."
_LOUDNESS: Final = "actlas.loudness"
_KEPT: Final = "actlas.kept"


def set_loudness(*, quiet: bool, verbose: bool) -> None:
    """Choose for the command that runs what is printed besides results and errors."""
    click.get_current_context().meta[_LOUDNESS] = -1 if quiet else int(verbose)


def add_loudness(command: click.Command) -> None:
    """Let a command, or every command of a group, take ``--quiet`` and ``--verbose`` itself."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            add_loudness(each)
        return
    command.params += [
        click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            expose_value=False,
            callback=_chosen,
            help="Print results and errors, nothing else.",
        ),
        click.Option(
            ["-v", "--verbose"],
            is_flag=True,
            expose_value=False,
            callback=_chosen,
            help="Print where errors come from, too.",
        ),
    ]


def _chosen(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if not value:
        return
    wanted = -1 if param.name == "quiet" else 1
    if ctx.meta.get(_LOUDNESS) == -wanted:
        raise click.UsageError(ONE_LOUDNESS)
    ctx.meta[_LOUDNESS] = wanted


def is_quiet() -> bool:
    """Whether nothing but results and errors is to be printed."""
    return _of_this_run(_LOUDNESS, 0) == -1


def is_verbose() -> bool:
    """Whether more is to be printed, for finding out why something failed."""
    return _of_this_run(_LOUDNESS, 0) == 1


def say(text: str, *, err: bool = False) -> None:
    """Tell what was done and what may come next, unless the user wants it quiet."""
    if not is_quiet():
        click.echo(text, err=err)


def keep_in_mind(kept: str) -> None:
    """Say beforehand what is kept if the user stops the command from here on."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[_KEPT] = kept


def what_is_kept() -> str:
    """Return what is kept of the work of a command that the user stopped."""
    return str(_of_this_run(_KEPT, "what was committed to the store is there, and nothing else"))


def _of_this_run(name: str, default: object) -> object:
    context = click.get_current_context(silent=True)
    return default if context is None else context.meta.get(name, default)


def print_json(document: object) -> None:
    """Write one JSON document; what is not a number becomes null, since JSON has no NaN."""
    click.echo(json.dumps(_without_nan(document), indent=2, ensure_ascii=False, allow_nan=False))


def _without_nan(document: object) -> object:
    if isinstance(document, float) and not math.isfinite(document):
        return None
    if isinstance(document, Mapping):
        return {str(name): _without_nan(value) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [_without_nan(value) for value in document]
    return document


def print_csv(columns: Sequence[str], rows: Sequence[Sequence[str | float]]) -> None:
    """Write comma-separated values with a header, numbers in full precision."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    click.echo(text.getvalue(), nl=False)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    title: str = "",
    colours: Mapping[str, str] | None = None,
) -> None:
    """Write an aligned table; columns of numbers are set to the right.

    Args:
        columns: Headers.
        rows: Cells.
        title: Line above it.
        colours: Colours of cells by their text, on a terminal that has colours.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for index, column in enumerate(columns):
        numeric = bool(rows) and all(_is_number(row[index]) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, (colours or {}).get(cell, "")) for cell in row))
    console = Console(markup=False, highlight=False, emoji=False)
    console.width = console.width if console.is_terminal else WIDE
    console.print(table)


def _is_number(text: str) -> bool:
    return text[:1].isdigit() or text[:1] in ("", "-")


def byte_size(count: int) -> str:
    """Return a number of bytes as people read it: ``1.5 GiB``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def duration(seconds: float) -> str:
    """Return a time as people read it: ``0.4 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def rate(each_second: float | None) -> str:
    """Return how many things are done in a time, as people read it: ``1,200/s``, ``4.5/min``."""
    if not each_second:
        return ""
    if each_second >= 1:
        return f"{each_second:,.0f}/s" if each_second >= 10 else f"{each_second:.1f}/s"
    return f"{60 * each_second:.1f}/min"


@contextmanager
def progress_bar(
    description: str, *, of_bytes: bool = False
) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on standard error while the block runs, if that is a terminal.

    Behind it stand how many things are done and how many there are, how many a second, the time
    taken and the time left. Where nothing was told, the time taken alone, and no line is left.

    Args:
        description: What is under way.
        of_bytes: Whether the things are bytes.

    Yields:
        A function that takes how many more things are done, and how many there are.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[count]} {task.fields[rate]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns,
        console=console,
        # Lines printed meanwhile go above the bar; those for a file or a pipe stay there.
        redirect_stdout=sys.stdout.isatty(),
        disable=is_quiet() or not console.is_terminal,
    ) as progress:
        task = progress.add_task(description, total=None, count="", rate="")

        def tell(more: int, total: int) -> None:
            progress.update(task, advance=more, total=total)
            shown = progress.tasks[0]
            done, speed = round(shown.completed), shown.speed
            if of_bytes:
                count = f"{byte_size(done)}/{byte_size(total)}"
                each_second = f"{byte_size(round(speed))}/s" if speed else ""
            else:
                count, each_second = f"{done:,}/{total:,}", rate(speed)
            progress.update(task, count=count, rate=each_second)

        try:
            yield tell
        finally:
            if progress.tasks[0].total is None:
                progress.update(task, visible=False)
