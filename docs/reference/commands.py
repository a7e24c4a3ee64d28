"""Writes the page of commands from their own help, when the documentation is built."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

PAGE = "reference/commands.md"
WIDTH = 96


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page to the files that are built."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, PAGE, content=commands_page()))
    return files


def commands_page() -> str:
    """Return the help of every command as one Markdown page."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from flows.cli import actlas

    parts = [
        "# Commands\n\nWhat `--help` says of each. Options may also come from the environment or"
        " from a file: see [settings](../guides/your-training-run.md).\n",
        _help(actlas, "actlas"),
    ]
    for name, command in _commands(actlas, "actlas"):
        parts.append(f"## {name}\n\n{_help(command, name)}")
    return "\n".join(parts)


def _commands(group: click.Group, prefix: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in sorted(group.commands.items()):
        yield f"{prefix} {name}", command
        if isinstance(command, click.Group):
            yield from _commands(command, f"{prefix} {name}")


def _help(command: click.Command, name: str) -> str:
    context = click.Context(command, info_name=name, max_content_width=WIDTH, terminal_width=WIDTH)
    return f"```text\n{command.get_help(context)}\n```\n"
