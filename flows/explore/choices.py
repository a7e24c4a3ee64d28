"""The choices at the top of the page: corpus, models, site, metric, rows, steps, layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from bokeh.layouts import row
from bokeh.models import CustomJSTickFormatter, InlineStyleSheet, LayoutDOM
from bokeh.models.widgets import CheckboxGroup, Div, RangeSlider, Select

from flows.explore.events import when_changed
from flows.explore.live import LiveStore
from flows.explore.style import common_options, wrapped

MODELS_AT_FIRST: Final = 4
FIRST_SITE: Final = "residual"
FIRST_METRIC: Final = "average_cosine"
FIRST_POPULATION: Final = "content"


class Choices:
    """Widgets that say what is to be shown.

    Args:
        live: The store.
        style: Style sheet of the widgets.
        changed: Called after any choice changed.
    """

    def __init__(
        self, live: LiveStore, style: InlineStyleSheet, changed: Callable[[], None]
    ) -> None:
        self._live = live
        self._changed = changed
        self._steps: list[int] = []
        self._filling = False
        self._common = common = common_options(style)
        self._corpus = Select(title="Corpus", name="corpus", **common)
        self._models = CheckboxGroup(name="models", inline=True, **common)
        self._known_steps = CustomJSTickFormatter(
            args={"steps": []},
            code="return (steps[tick] ?? steps.at(-1) ?? tick).toLocaleString('en')",
        )
        self._site = Select(title="Site", name="site", **common)
        self._metric = Select(title="Metric", name="metric", **common)
        self._population = Select(title="Rows", name="population", **common)
        self._range, self._layers = (
            RangeSlider(title=title, name=name, start=0, end=1, value=(0, 1), step=1, **common)
            for title, name in (("Steps", "steps"), ("Layers", "layers"))
        )
        self._range.format = self._known_steps
        self._layers.format = "0"
        self.fill()
        when_changed(self._corpus, "value", self._corpus_chosen)
        when_changed(self._models, "active", self._models_chosen)
        when_changed(self._site, "value", self._site_chosen)
        for widget in (self._metric, self._population):
            when_changed(widget, "value", self._tell)
        for slider in (self._range, self._layers):
            when_changed(slider, "value", self._tell)

    @property
    def layout(self) -> list[LayoutDOM]:
        """The widgets in a row that wraps on a narrow screen, and the models below."""
        selects = self._corpus, self._site, self._metric, self._population
        parts = (*selects, self._range, self._layers)
        choices = row(*parts, sizing_mode="stretch_width", stylesheets=[wrapped()])
        return [choices, Div(text="Models", **self._common), self._models]

    @property
    def corpus(self) -> str:
        """Name of the corpus, empty where nothing is stored."""
        return str(self._corpus.value or "")

    @property
    def models(self) -> list[str]:
        """Names of the models."""
        return [self._models.labels[number] for number in self._models.active]

    @property
    def site(self) -> str:
        """Name of the site."""
        return str(self._site.value or FIRST_SITE)

    @property
    def metric(self) -> str:
        """Name of the metric, empty where none was computed."""
        return str(self._metric.value or "")

    @property
    def population(self) -> str:
        """Name of the population."""
        return str(self._population.value or "")

    @property
    def steps(self) -> list[int]:
        """Steps within the chosen range."""
        low, high = self._range.value
        return self._steps[round(low) : round(high) + 1]

    @property
    def layers(self) -> range:
        """Layers within the chosen range."""
        low, high = self._layers.value
        return range(round(low), round(high) + 1)

    def choose_steps(self, low: float, high: float, place: Callable[[int], float]) -> None:
        """Choose the steps drawn between two places; all of them if there are none between."""
        inside = [number for number, step in enumerate(self._steps) if low <= place(step) <= high]
        last = max(len(self._steps) - 1, 1)
        self._range.value = (min(inside), max(inside)) if inside else (0, last)

    def choose_metric(self, metric: str) -> None:
        """Choose a metric that has been computed meanwhile."""
        if metric in self._live.metrics(self.corpus, self.site):
            self._metric.value = metric
        self._tell()

    def fill(self) -> None:
        """Offer what the store has now, and keep what is chosen where it still can be."""
        self._filling = True
        corpora = self._live.corpora
        measured = (name for name in corpora if self._live.metrics(name, FIRST_SITE))
        _offer(self._corpus, corpora, next(measured, ""))
        self._fill_corpus()
        self._filling = False

    def _fill_corpus(self) -> None:
        held = list(self._live.models(self.corpus))
        kept = [number for number, name in enumerate(held) if name in self.models]
        first = list(range(min(MODELS_AT_FIRST, len(held))))
        self._models.update(labels=held, active=kept or first)
        _offer(self._population, self._live.populations(self.corpus), FIRST_POPULATION)
        self._fill_sites()

    def _fill_sites(self) -> None:
        _offer(self._site, self._live.sites(self.corpus, self.models), FIRST_SITE)
        _offer(self._metric, self._live.metrics(self.corpus, self.site), FIRST_METRIC)
        self._fill_ranges()

    def _fill_ranges(self) -> None:
        steps = self._live.steps(self.corpus, self.models, self.site)
        if steps != self._steps:
            self._steps = steps
            self._known_steps.update(args={"steps": steps})
            _stretch(self._range, len(steps) - 1)
        deepest = self._live.deepest(self.corpus, self.models, self.site)
        if deepest != self._layers.end:
            _stretch(self._layers, deepest)

    def _corpus_chosen(self) -> None:
        self._follow(self._fill_corpus)

    def _models_chosen(self) -> None:
        self._follow(self._fill_sites)

    def _site_chosen(self) -> None:
        self._follow(self._fill_sites)

    def _follow(self, fill: Callable[[], None]) -> None:
        """Offer anew what depends on a choice, and tell once."""
        if not self._filling:
            self._filling = True
            fill()
            self._filling = False
            self._changed()

    def _tell(self) -> None:
        if not self._filling:
            self._changed()


def _offer(select: Select, options: Sequence[str], first: str) -> None:
    """Offer options, and choose one of them if the one that is chosen is not there any more."""
    select.update(options=list(options))
    if select.value not in options:
        select.value = first if first in options else next(iter(options), "")
    select.disabled = not options


def _stretch(slider: RangeSlider, last: int) -> None:
    """Let a slider reach from 0 to the last, and choose all; one value alone is not a range."""
    slider.update(end=max(last, 1), value=(0, max(last, 1)), disabled=last < 1)
