"""Everything that the documents show to be typed is run by a test, or said here why not."""

from __future__ import annotations

import ast
import re
import shlex
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from documents import (
    DOCUMENTS,
    NOT_RUN,
    PROGRAMS,
    ROOT,
    RUN_BY,
    Piece,
    all_pieces,
    command_of,
    without_blocks,
)

LANGUAGES = {"sh", "python", ""}
NAMES = [piece for piece in all_pieces() if not piece.is_whole]


def where(piece: Piece) -> str:
    return f"{piece.document}:{piece.line}: {piece.text}"


def test_nothing_is_left_that_no_test_runs() -> None:
    whole = [piece for piece in all_pieces() if piece.is_whole]
    assert len(whole) > 120
    assert [where(one) for one in whole if one.owner is None and not one.excused] == []


def test_what_is_not_run_is_there_and_little() -> None:
    assert len(NOT_RUN) <= 4
    for pattern, reason in NOT_RUN:
        assert reason
        assert any(re.search(pattern, piece.text) for piece in all_pieces()), pattern


@pytest.mark.parametrize("file", sorted({file for file, *_ in RUN_BY}))
def test_each_of_these_tests_runs_what_is_its_own(file: str) -> None:
    """A piece that is given to nobody's hands would only look as if it were run."""
    assert any(piece.owner == file for piece in all_pieces())
    calls = [
        node
        for node in ast.walk(ast.parse((ROOT / "tests" / file).read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node) == "pieces_of(__file__)"
    ]
    assert calls


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_command_hides_in_other_blocks(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert {language for language, _ in blocks} <= LANGUAGES
    begins = re.compile(rf"^(\$ )?({'|'.join(PROGRAMS)}|from|import|export)\b(?=\S* )")
    for language, block in blocks:
        if not language:
            bare = [line for line in block.splitlines() if not line.startswith("$ ")]
            assert [line for line in bare if begins.match(line)] == []
    # A block by its indent alone has no language.
    assert re.findall(r"\n\n {4,}\S.*", without_blocks(text)) == []


@pytest.mark.parametrize(
    "piece", [one for one in NAMES if re.match(r"actlas (?!--)", one.text)], ids=where
)
def test_a_command_that_is_only_named_is_there_with_its_options(piece: Piece) -> None:
    for text in _alternatives(piece.text):
        command, rest = command_of(shlex.split(text))
        known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
        used = {word for word in rest if word.startswith("-")}
        assert used <= known | {"--help"}, text


def _alternatives(text: str) -> list[str]:
    """Return a line for each word of ``deploy|serve|run``."""
    bare = re.sub(r"\[.*|…", "", text)
    choice = re.search(r"\S+\|\S+", bare)
    if choice is None:
        return [bare]
    return [bare.replace(choice[0], one, 1) for one in choice[0].split("|")]
