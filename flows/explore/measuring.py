"""Asking for a metric that was not computed yet, and watching it being computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape

from bokeh.layouts import row
from bokeh.models import InlineStyleSheet, LayoutDOM
from bokeh.models.widgets import Button, Div, Select

from analysis.metrics import METRICS, Metric
from flows.console import duration
from flows.explore.background import Background
from flows.explore.choices import Choices
from flows.explore.live import LiveStore
from flows.explore.sites import metrics_of, steps_with
from flows.explore.style import common_options, wrapped
from flows.measurement import MeasureOptions, Target, find_targets, measure_target
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
        computed = set(self._live.metrics(self._choices.corpus, self._choices.site))
        offered = metrics_of(self._choices.site)
        missing = [name for name in offered if name not in computed]
        known = [name for name in offered if name in computed]
        options = [
            *((name, f"{offered[name].long_name}: not computed yet") for name in missing),
            *((name, offered[name].long_name) for name in known),
        ]
        self._metric.update(options=options)
        if self._metric.value not in missing:
            self._metric.value = next(iter(missing), next(iter(offered)))

    def _start(self) -> None:
        metric, corpus, site = str(self._metric.value), self._choices.corpus, self._choices.site
        models = [
            node_name(name.removesuffix("/encoder").removesuffix("/decoder"))
            for name in self._choices.models
        ]
        if not models or metric not in metrics_of(site):
            self._told.text = f'{_TITLE}<p class="failure">Choose a model and a metric first.</p>'
            return
        self._button.disabled = True
        asked = metrics_of(site)[metric]
        self._tell_progress(asked, 0, 0)

        def work() -> tuple[int, float]:
            targets = _with_site(
                find_targets(
                    self._live.repository, corpus=corpus, models=list(dict.fromkeys(models))
                ),
                site,
            )
            # What is measured of numbers is measured whole.
            names = (metric,) if metric in METRICS else None
            options = MeasureOptions(metrics=names, sites=(site,))
            computed, seconds = 0, 0.0
            for number, target in enumerate(targets):
                finished = 0

                def progress(more: int, total: int, number: int = number) -> None:
                    nonlocal finished
                    finished += more
                    done, whole = number * total + finished, len(targets) * total
                    self._background.soon(lambda: self._tell_progress(asked, done, whole))

                report = measure_target(self._live.uri, target, options=options, progress=progress)
                computed, seconds = computed + report.computed, seconds + report.seconds
            return computed, seconds

        self._background.run(work, lambda found: self._finished(asked, *found), self._failed)

    def _tell_progress(self, metric: Metric, done: int, total: int) -> None:
        bar = f'value="{done}" max="{total}"' if total else ""
        told = f"{done} of {total} layers" if total else "starting"
        self._told.text = (
            f"{_TITLE}<p>{escape(metric.long_name)}: {told}</p>"
            f'<progress {bar} aria-label="progress"></progress>'
        )

    def _finished(self, metric: Metric, computed: int, seconds: float) -> None:
        self._button.disabled = False
        self._told.text = (
            f"{_TITLE}<p>{escape(metric.long_name)}: {computed:,} values computed in"
            f" {duration(seconds)}. They are in the store.</p>"
        )
        self._done(metric.name)

    def _failed(self, error: Exception) -> None:
        self._button.disabled = False
        self._told.text = f'{_TITLE}<p class="failure">{escape(str(error))}</p>'


def _with_site(targets: Sequence[Target], site: str) -> list[Target]:
    """Leave the steps that hold a site, and the models that have such steps."""
    left = (
        replace(target, steps=tuple(step for step in target.steps if step in held))
        for target in targets
        for held in (steps_with(target.model, site),)
    )
    return [target for target in left if target.steps]
