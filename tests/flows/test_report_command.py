"""``actlas report``: its options reach the report, its errors the user."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import analysis.report
from flows.cli import actlas


def test_options_reach_the_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = []

    def write_report(uri: str, output: Path, **chosen: object) -> Path:
        assert callable(chosen.pop("tell"))
        calls.append((uri, output, chosen))
        return output

    monkeypatch.setattr(analysis.report, "write_report", write_report)
    output = tmp_path / "page.html"
    options = ["--store", "here", "--corpus", "plays", "--models", "a,b", "-o", str(output)]
    result = CliRunner().invoke(actlas, ["report", *options])
    assert result.exit_code == 0, result.output
    assert calls == [("here", output, {"corpus": "plays", "models": ("a", "b")})]
    assert result.stdout == f"Wrote {output}: open it in a browser\n"


def test_a_store_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    options = ["--store", str(tmp_path / "nowhere"), "-o", str(tmp_path / "page.html")]
    result = CliRunner().invoke(actlas, ["report", *options])
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert "nowhere" in result.stderr
    assert not (tmp_path / "page.html").exists()


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(actlas, ["report", "-o", str(tmp_path / "page.pdf")])
    assert result.exit_code == 2
    assert "expected a name ending in .html, .htm" in " ".join(result.stderr.split())
