"""What commands write beside their results."""

from __future__ import annotations

import re

import pytest

from flows.console import progress_bar, rate

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""What moves the cursor of a terminal, or colours it."""


@pytest.mark.parametrize(
    ("each_second", "told"),
    [
        (None, ""),
        (0.0, ""),
        (1234.4, "1,234/s"),
        (4.56, "4.6/s"),
        (0.075, "4.5/min"),  # 0.075 · 60
    ],
)
def test_a_rate_as_people_read_it(each_second: float | None, told: str) -> None:
    assert rate(each_second) == told


def test_a_terminal_is_shown_how_many_of_how_many_and_how_fast(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar("bare") as tell:
        tell(1, 1)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # what rich takes for a terminal
    monkeypatch.setenv("COLUMNS", "100")
    with progress_bar("tiny [step 3]") as tell:
        for _ in range(3):
            tell(100, 300)
    shown = CONTROL.sub("", capsys.readouterr().err)
    assert re.search(
        r"tiny \[step 3\] \S+ 300/300 [\d,.]+/(s|min) \d:\d\d:\d\d \d:\d\d:\d\d", shown
    )


def test_bytes_are_told_as_people_read_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    with progress_bar("export plays", of_bytes=True) as tell:
        for _ in range(2):
            tell(3 << 19, 3 << 20)
    shown = CONTROL.sub("", capsys.readouterr().err)
    assert re.search(r"plays \S+ 3.0 MiB/3.0 MiB [\d.]+ [KMGT]?i?B/s \d:\d\d:\d\d 0:00:00", shown)


def test_what_cannot_be_counted_leaves_no_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar("gc"):
        pass
    erased, cursor_back = "\r\x1b[2K", "\x1b[?25h"
    assert capsys.readouterr().err.endswith(erased + cursor_back)
