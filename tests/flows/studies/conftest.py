"""Figures that are not laid out, or in one format: that is most of the work, and not tested."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure


@pytest.fixture
def unlaid_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write figures as they stand."""
    monkeypatch.setattr(Figure, "draw_without_rendering", lambda _figure: None)


@pytest.fixture
def quick_figures(monkeypatch: pytest.MonkeyPatch, unlaid_figures: None) -> None:
    """Write figures as they stand, as SVG alone."""
    monkeypatch.setattr("flows.studies.run.SUFFIXES", (".svg",))
