"""The page: its parts, one below the other, and what follows from what."""

from __future__ import annotations

from typing import Final

from bokeh.document import Document
from bokeh.layouts import column
from jinja2 import Template

from flows.explore.background import Background
from flows.explore.choices import Choices
from flows.explore.live import LiveStore
from flows.explore.measuring import Measuring
from flows.explore.profiles import Profiles
from flows.explore.style import figure_theme, palette, read_text, widget_style
from flows.explore.tokens import TokenView

REFRESH_MILLISECONDS: Final = 5000
"""Time between looks for a newer snapshot."""


def build_page(document: Document, uri: str, *, dark: bool) -> None:
    """Fill the document of one browser tab.

    Args:
        document: The document.
        uri: Where the store is.
        dark: Whether figures are drawn in dark colours.
    """
    document.title = "actlas explore"
    document.theme = figure_theme(dark=dark)
    document.template = Template(read_text("page.html"))
    document.template_variables.update(
        page_css=read_text("page.css"),
        store_name=uri,
        other_theme="light" if dark else "dark",
    )
    Page(document, LiveStore(uri), dark=dark)


class Page:
    """The parts of the page of one tab, wired to each other."""

    def __init__(self, document: Document, live: LiveStore, *, dark: bool) -> None:
        self._live = live
        style, colours = widget_style(), palette(dark=dark)
        # Tokens are looked at while a metric is being computed.
        reading, computing = Background(document), Background(document)
        self._choices = Choices(live, style, self._chosen)
        self._profiles = Profiles(live, self._choices, style, colours)
        self._tokens = TokenView(live, self._choices, style, colours, reading)
        self._measuring = Measuring(live, self._choices, style, computing, self._computed)
        self._shown = self._what()
        parts = [
            *self._choices.layout,
            *self._profiles.layout,
            *self._tokens.layout,
            *self._measuring.layout,
        ]
        document.add_root(column(*parts, sizing_mode="stretch_width", name="page"))
        document.add_periodic_callback(self._refresh, REFRESH_MILLISECONDS)

        def closed(_: object) -> None:
            reading.close()
            computing.close()

        document.on_session_destroyed(closed)
        self._profiles.draw()
        self._tokens.fill()
        self._measuring.fill()

    def _what(self) -> tuple[str, list[str], str]:
        return self._choices.corpus, self._choices.models, self._choices.site

    def _chosen(self) -> None:
        self._profiles.draw()
        chosen = self._what()
        if chosen != self._shown:
            self._shown = chosen
            self._tokens.fill()
            self._measuring.fill()

    def _computed(self, metric: str) -> None:
        self._refresh()
        self._choices.choose_metric(metric)

    def _refresh(self) -> None:
        if self._live.refresh():
            self._choices.fill()
            self._profiles.draw()
            self._measuring.fill()
            if self._what() != self._shown:
                self._chosen()
