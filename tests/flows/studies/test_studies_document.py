"""docs/STUDIES.md: its commands are valid, and it has every study and picture that there is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from flows.cli import actlas
from flows.studies import STUDIES

DOCS = Path(__file__).parents[3] / "docs"
DOCUMENT = (DOCS / "STUDIES.md").read_text()
SMALL = 150_000


def test_the_commands_are_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("book.txt").touch()
    blocks = re.findall(r"```sh\n(.*?)```", DOCUMENT, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("actlas ")]
    assert len(lines) >= 8
    for line in lines:
        _, name, *arguments = shlex.split(line, comments=True)
        command: click.Command = actlas.commands[name]
        command.make_context(name, arguments)


def test_every_study_is_told_of() -> None:
    told = re.findall(r"^\| `([a-z-]+)` \|", DOCUMENT, re.MULTILINE)
    assert set(told) == set(STUDIES)


def test_its_pictures_are_there_and_small() -> None:
    pictures = re.findall(r"\]\((images/[^)]+)\)", DOCUMENT)
    assert all((DOCS / picture).stat().st_size < SMALL for picture in pictures)
