"""What commands write beside their results."""

from __future__ import annotations

import re

import pytest

from flows.console import progress_bar, rate


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
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert re.search(
        r"tiny \[step 3\] \S+ 300/300 [\d,.]+/(s|min) \d:\d\d:\d\d \d:\d\d:\d\d", shown
    )
