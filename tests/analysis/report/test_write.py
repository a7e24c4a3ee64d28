"""A report of a real store, from activations to the file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.compute import measure
from analysis.errors import InputError
from analysis.report import write_report
from store.errors import StoreNotFoundError, UnknownNameError
from store.repository import Repository


@pytest.fixture
def uri(stored: Any) -> str:
    measure(stored.repository, stored.path, metrics=["average_cosine", "spectrum", "two_nn"])
    return str(stored.repository.uri)


def test_the_page_holds_what_was_measured(uri: str, tmp_path: Path) -> None:
    written = write_report(
        uri, tmp_path / "new" / "report.html", corpus="plays", models=["owner/toy"]
    )
    assert written == tmp_path / "new" / "report.html"
    page = written.read_text("utf-8")
    assert '"label":"owner/toy"' in page
    for name in ("average_cosine", "spectrum", "two_nn"):
        assert f'"{name}":{{"dims":' in page
    assert str(tmp_path) not in page


def test_the_same_snapshot_gives_the_same_bytes(uri: str, tmp_path: Path) -> None:
    pages = [write_report(uri, tmp_path / name).read_bytes() for name in ("a.html", "b.html")]
    assert pages[0] == pages[1]
    assert len(pages[0]) < 200_000


def test_a_store_without_metrics_is_described_all_the_same(
    make_stored: Callable[..., Any], memory_uri: str, tmp_path: Path
) -> None:
    make_stored(memory_uri)
    page = write_report(memory_uri, tmp_path / "report.htm").read_text("utf-8")
    assert '"name":"No metrics"' in page
    assert re.search(r'"quantit', page) is None


def test_what_cannot_be_written(uri: str, memory_uri: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"suffix must be one of \.html, \.htm"):
        write_report(uri, tmp_path / "report.pdf")
    with pytest.raises(UnknownNameError, match="no model 'toi'"):
        write_report(uri, tmp_path / "report.html", models=["toi"])
    with pytest.raises(UnknownNameError, match="no corpus 'play'"):
        write_report(uri, tmp_path / "report.html", corpus="play")
    with pytest.raises(StoreNotFoundError):
        write_report(str(tmp_path / "nowhere"), tmp_path / "report.html")
    Repository.create(str(tmp_path / "empty"))
    with pytest.raises(InputError, match="holds no model"):
        write_report(str(tmp_path / "empty"), tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
