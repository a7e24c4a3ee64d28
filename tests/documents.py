"""What the documents show to be typed, piece by piece, and which test runs each.

A piece is a line of a block of shell, a block of Python, a command with the answer shown below it,
or a command within a sentence. A test runs ``pieces_of(__file__)``; ``RUN_BY`` says what is whose,
and ``test_documents.py`` that nothing is left over.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal

import click

ROOT: Final = Path(__file__).parents[1]
DOCUMENTS: Final = tuple(
    path.relative_to(ROOT).as_posix()
    for pattern in ("README.md", "docs/**/*.md", "deploy/**/*.md", "CHANGELOG.md")
    for path in sorted(ROOT.glob(pattern))
)
PROGRAMS: Final = ("actlas", "python", "pip", "make", "prefect", "docker", "dask", "deploy/")

Kind = Literal["sh", "python", "transcript", "inline"]

RUN_BY: Final = (
    ("test_readme.py", r"README\.md#Ten lines in a notebook", r""),
    ("test_packaging.py", r"README\.md#.*", r"^pip install"),
    ("flows/media/test_readme_media.py", r"README\.md#Images and sounds", r""),
    ("flows/capture/test_hub_commands.py", r"README\.md#What is kept", r"EleutherAI/|google-bert/"),
    ("flows/test_bad_input.py", r"README\.md#What is kept", r"--trust-remote-code"),
    (
        "flows/test_scheduled_watch.py",
        r".*",
        r"PREFECT_|^prefect |actlas flows |^make demo|/overhead.py",
    ),
    ("test_project.py", r".*", r"^make "),
    ("deploy/test_slurm.py", r"docs/OPERATIONS\.md#.*", r"slurm:jobqueue"),
    ("test_guides.py", r"docs/guides/.*", r""),
    ("flows/studies/test_studies_document.py", r"docs/STUDIES\.md#.*", r""),
    ("flows/studies/test_studies_document.py", r".*", r"^actlas (study|train-tiny) "),
    ("flows/test_readme_commands.py", r"README\.md#.*", r""),
    ("flows/test_operations_commands.py", r"docs/(OPERATIONS|ARCHITECTURE)\.md#.*", r""),
    ("test_benchmarks.py", r"docs/(BENCHMARKS|SCALE)\.md#.*", r"^python benchmarks/"),
)
"""Test file, document and heading, and what of it: the first that matches runs a piece."""

NOT_RUN: Final = (
    (r"^\. \.venv/bin/activate$", "the tests run in the environment that make makes"),
    (r"^docker compose stop ", "needs Docker"),
    (r"^pip install 'actlas\[cuda\]'$", "needs an NVIDIA GPU"),
    (r"^actlas tokens 1", "is no command, but what a digest begins with"),
)


@dataclass(frozen=True)
class Piece:
    """A piece of a document.

    Attributes:
        document: Its document, relative to the checkout, and heading: ``README.md#Two commands``.
        line: Where it begins, from 1.
        kind: What it is.
        text: It, without the remark behind it.
        answer: What a transcript shows below its command.
    """

    document: str
    line: int
    kind: Kind
    text: str
    answer: str = ""

    @property
    def owner(self) -> str | None:
        """The test file that runs it, relative to ``tests``; None if none does."""
        for file, document, text in RUN_BY:
            if re.fullmatch(document, self.document) and re.search(text, self.text):
                return file
        return None

    @property
    def excused(self) -> bool:
        """Whether it is one of those that no test can run."""
        return any(re.search(pattern, self.text) for pattern, _ in NOT_RUN)

    @property
    def is_form(self) -> bool:
        """Whether it is how a command goes, not one: choices, names to fill in, parts left out."""
        bare = re.sub(r"'[^']*'|\b(?:LIST|ALL)\b", "", self.text)
        return self.kind == "inline" and bool(re.search(r"…|\||\[|\b[A-Z][A-Z_]*\b", bare))

    @property
    def is_whole(self) -> bool:
        """Whether it can be typed as it stands, and is not just the name of a command."""
        if self.kind != "inline" or self.excused:
            return True
        words = shlex.split(self.text)
        # What a release brought is told of by its name; nobody is asked to type it.
        if self.is_form or words[0] == "dask" or self.document.startswith("CHANGELOG.md"):
            return False
        command, arguments = command_of(words) if words[0] == "actlas" else (None, words[1:])
        if command is None or not arguments or "--help" in arguments:
            return bool(arguments)
        try:
            command.make_context(command.name, list(arguments))
        except (click.MissingParameter, click.BadOptionUsage):
            return False  # an argument is missing, or the value of the last option
        except click.BadParameter:
            return True  # a file that is there when it is typed
        return True


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command of ``actlas`` that words begin with, and the words behind it.

    Raises:
        KeyError: If there is no such command.
    """
    from flows.cli import actlas

    command: click.Command = actlas
    rest = words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        command = command.commands[rest[0]]
        rest = rest[1:]
    return command, rest


def pieces_of(test_file: str) -> list[Piece]:
    """Return what a test file has to run, document by document, from top to bottom."""
    own = Path(test_file).resolve().relative_to(ROOT / "tests").as_posix()
    return [one for one in all_pieces() if one.owner == own and one.is_whole and not one.excused]


@cache
def all_pieces() -> tuple[Piece, ...]:
    """Return every piece of every document; what a sentence says again is no other."""
    found = [piece for document in DOCUMENTS for piece in _pieces(document)]
    typed = {piece.text for piece in found if piece.kind == "sh"}
    told = {piece.text: piece for piece in reversed(found) if piece.kind == "inline"}
    return tuple(
        piece
        for piece in found
        if piece.kind != "inline" or (piece.text not in typed and told[piece.text] is piece)
    )


def _pieces(document: str) -> list[Piece]:
    text = (ROOT / document).read_text(encoding="utf-8")
    found = []
    for block in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        first = text.count("\n", 0, block.start(2)) + 1
        place = f"{document}#{_heading(text[: block.start()])}"
        found += list(_of_block(place, first, block[1], block[2]))
    prose = without_blocks(text)
    programs = "|".join(PROGRAMS)
    for inline in re.finditer(rf"`((?:{programs})[^`\s]*\s[^`]+)`", prose):
        before = prose[: inline.start()]
        place = f"{document}#{_heading(before)}"
        words = " ".join(inline[1].split())
        found.append(Piece(place, before.count("\n") + 1, "inline", words))
    return sorted(found, key=lambda piece: piece.line)


def without_blocks(text: str) -> str:
    """Return a document with empty lines for those of its blocks."""
    block = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
    return block.sub(lambda found: "\n" * found[0].count("\n"), text)


def _heading(before: str) -> str:
    headings = re.findall(r"^#+ (.*)", without_blocks(before), re.MULTILINE)
    return headings[-1] if headings else ""


def _of_block(place: str, first: int, language: str, block: str) -> Iterator[Piece]:
    if language == "python":
        yield Piece(place, first, "python", block)
        return
    for number, line in enumerate(block.splitlines(), first):
        if language == "sh":
            command, _, remark = re.sub(r"\s+#", "\0", line, count=1).partition("\0")
            if command:
                yield Piece(place, number, "sh", command.strip())
            if follows := re.search(r"then: (actlas .*)", remark):
                yield Piece(place, number, "sh", follows[1])
        elif line.startswith("$ "):
            answer = re.split(r"^\$ ", block.partition(f"{line}\n")[2], flags=re.MULTILINE)[0]
            yield Piece(place, number, "transcript", line[2:], answer)
