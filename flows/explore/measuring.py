"""Asking for a metric that was not computed yet, and watching it being computed."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from bokeh.layouts import row
from bokeh.models import InlineStyleSheet, LayoutDOM
from bokeh.models.widgets import Button, Div, Select

from analysis.metrics import METRICS
from flows.console import duration
from flows.explore.background import Background
from flows.explore.choices import Choices
from flows.explore.live import LiveStore
from flows.explore.style import common_options, wrapped
from flows.measurement import MeasureOptions, find_targets, measure_target
from store.schema import node_name

_TITLE = "<h2>Compute a metric</h2>"


class Measuring:
    """A list of metrics, a button, and how far the computation is.

    Args:
        live: The store.
        choices: Which corpus, models, steps and layers.
        style: Style sheet of the widgets.
        background: Where it is computed.
        done: Called when there are new values.
    """

    def __init__(
        self,
        live: LiveStore,
        choices: Choices,
        style: InlineStyleSheet,
        background: Background,
        done: Callable[[str], None],
    ) -> None:
        self._live, self._choices, self._background, self._done = live, choices, background, done
        common = common_options(style)
        self._metric = Select(title="Metric to compute", name="compute-metric", **common)
        self._button = Button(label="Compute it", name="compute", **common)
        self._told = Div(name="progress", text=_TITLE, **common)
        self._button.on_click(self._start)

    @property
    def layout(self) -> list[LayoutDOM]:
        """What is told, and the widgets below it."""
        parts = self._metric, self._button
        return [self._told, row(*parts, sizing_mode="stretch_width", stylesheets=[wrapped()])]

    def fill(self) -> None:
        """Offer every metric, those first that were not computed yet."""
        computed = set(self._live.metrics(self._choices.corpus))
        missing = [name for name in METRICS if name not in computed]
        known = [name for name in METRICS if name in computed]
        options = [
            *((name, f"{METRICS[name].long_name}: not computed yet") for name in missing),
            *((name, METRICS[name].long_name) for name in known),
        ]
        self._metric.update(options=options)
        if self._metric.value not in METRICS or self._metric.value in computed:
            self._metric.value = next(iter(missing), next(iter(METRICS)))

    def _start(self) -> None:
        metric, corpus = str(self._metric.value), self._choices.corpus
        models = [
            node_name(name.removesuffix("/encoder").removesuffix("/decoder"))
            for name in self._choices.models
        ]
        if not models or metric not in METRICS:
            self._told.text = f'{_TITLE}<p class="failure">Choose a model and a metric first.</p>'
            return
        self._button.disabled = True
        self._tell_progress(metric, 0, 0)

        def work() -> tuple[int, float]:
            targets = find_targets(
                self._live.repository, corpus=corpus, models=list(dict.fromkeys(models))
            )
            options = MeasureOptions(metrics=(metric,))
            computed, seconds = 0, 0.0
            for number, target in enumerate(targets):
                finished = 0

                def progress(more: int, total: int, number: int = number) -> None:
                    nonlocal finished
                    finished += more
                    done, whole = number * total + finished, len(targets) * total
                    self._background.soon(lambda: self._tell_progress(metric, done, whole))

                report = measure_target(self._live.uri, target, options=options, progress=progress)
                computed, seconds = computed + report.computed, seconds + report.seconds
            return computed, seconds

        self._background.run(work, lambda found: self._finished(metric, *found), self._failed)

    def _tell_progress(self, metric: str, done: int, total: int) -> None:
        bar = f'value="{done}" max="{total}"' if total else ""
        told = f"{done} of {total} layers" if total else "starting"
        self._told.text = (
            f"{_TITLE}<p>{escape(METRICS[metric].long_name)}: {told}</p>"
            f'<progress {bar} aria-label="progress"></progress>'
        )

    def _finished(self, metric: str, computed: int, seconds: float) -> None:
        self._button.disabled = False
        self._told.text = (
            f"{_TITLE}<p>{escape(METRICS[metric].long_name)}: {computed:,} values computed in"
            f" {duration(seconds)}. They are in the store.</p>"
        )
        self._done(metric)

    def _failed(self, error: Exception) -> None:
        self._button.disabled = False
        self._told.text = f'{_TITLE}<p class="failure">{escape(str(error))}</p>'
