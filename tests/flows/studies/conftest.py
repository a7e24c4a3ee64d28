"""Figures in one format and not laid out: layout is most of the work, and not what is tested."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure


@pytest.fixture
def quick_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write figures as SVG alone, as they stand."""
    monkeypatch.setattr("flows.studies.run.SUFFIXES", (".svg",))
    monkeypatch.setattr(Figure, "draw_without_rendering", lambda _figure: None)
