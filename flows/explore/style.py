"""How the page looks: its template, the colours of figures, the sheet that widgets share."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Final, Literal, TypedDict

from bokeh.models import InlineStyleSheet
from bokeh.models.css import Styles, StyleSheet
from bokeh.themes import Theme

_HERE = files(__package__)

LIGHT: Final = ("#0072b2", "#c74f00", "#00835f", "#b8568f", "#94700a", "#2a8bc9", "#3c4650")
DARK: Final = ("#4aa3e0", "#f0813a", "#2fbf94", "#dd8fb9", "#e3b341", "#8fd0f5", "#ccd3da")
"""Colours of series, which keep a contrast of 3:1 with what they are drawn on."""


def read_text(name: str) -> str:
    """Return a file of this package."""
    return _HERE.joinpath(name).read_text(encoding="utf-8")


def widget_style() -> InlineStyleSheet:
    """Return the style sheet of widgets, whose insides the page's own does not reach."""
    return InlineStyleSheet(css=read_text("widgets.css"))


class Common(TypedDict):
    """What all widgets are made with."""

    stylesheets: list[StyleSheet | str | dict[str, dict[str, str | None] | Styles]]
    sizing_mode: Literal["stretch_width"]
    min_width: int


def common_options(style: InlineStyleSheet) -> Common:
    """Return what a widget is made with: the shared style, and as wide as there is room."""
    return {"stylesheets": [style], "sizing_mode": "stretch_width", "min_width": 150}


def wrapped() -> InlineStyleSheet:
    """Return the style of a row whose parts go below each other on a narrow screen."""
    return InlineStyleSheet(css=":host { flex-wrap: wrap; gap: 0.4rem 1rem; align-items: end; }")


def tooltip(rows: Sequence[tuple[str, str]]) -> str:
    """Return what is shown over a point, in the colours of the page: Bokeh's own are too pale.

    Args:
        rows: Labels, and which column of the point is shown beside each, such as ``@value``.
    """
    cells = "".join(
        f'<span style="color: var(--quiet); text-align: right">{label}</span>'
        f'<span class="tip">{value}</span>'
        for label, value in rows
    )
    # Over the white of the box that it lies in, with the room that this leaves around it.
    return (
        '<div style="display: grid; grid-template-columns: auto 1fr; gap: 0.1rem 0.6rem;'
        " margin: -5px; padding: 0.4rem 0.6rem; max-width: min(26rem, 44vw);"
        " overflow-wrap: anywhere; background: var(--surface); color: var(--ink);"
        f' font: 0.85rem/1.4 system-ui, sans-serif">{cells}</div>'
    )


def palette(*, dark: bool) -> tuple[str, ...]:
    """Return the colours of series, in order."""
    return DARK if dark else LIGHT


def figure_theme(*, dark: bool) -> Theme:
    """Return the colours of everything else in a figure."""
    surface, ink, quiet, grid = (
        ("#171b21", "#e7ebf0", "#9eabb9", "#262d36")
        if dark
        else ("#ffffff", "#1a1f26", "#55606d", "#e6eaee")
    )
    return Theme(
        json={
            "attrs": {
                "Plot": {
                    "background_fill_color": surface,
                    "border_fill_color": surface,
                    "outline_line_color": grid,
                },
                "Grid": {"grid_line_color": grid},
                "Axis": {
                    "axis_label_text_color": quiet,
                    "axis_label_text_font_style": "normal",
                    "major_label_text_color": quiet,
                    "axis_line_color": grid,
                    "major_tick_line_color": quiet,
                    "minor_tick_line_color": None,
                },
                "Title": {"text_color": ink, "text_font_style": "normal"},
                "Legend": {
                    "background_fill_alpha": 0.8,
                    "background_fill_color": surface,
                    "border_line_color": grid,
                    "label_text_color": ink,
                },
            }
        }
    )
