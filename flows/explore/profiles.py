"""A metric over depth and over training, the second of which chooses the steps of the first."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

import numpy as np
from bokeh.events import Event, SelectionGeometry
from bokeh.layouts import row
from bokeh.models import InlineStyleSheet, LayoutDOM
from bokeh.models.widgets import Div

from analysis.samples import SEVERAL, tell_samples
from flows.explore.charts import along_steps, curve_chart, fill_depth, fill_training
from flows.explore.choices import Choices
from flows.explore.live import LiveStore, Values
from flows.explore.sites import HEADS, metrics_of
from flows.explore.style import wrapped
from store.schema import depth_dimension, site_variable

_BARS: Final = {
    False: "Bars: one standard error.",
    True: "Values: means over heads; bars: from the lowest head to the highest.",
}


class Profiles:
    """Two figures of the metric that is chosen."""

    def __init__(
        self, live: LiveStore, choices: Choices, style: InlineStyleSheet, colours: Sequence[str]
    ) -> None:
        self._live, self._choices, self._colours = live, choices, colours
        self._depth = curve_chart("depth", "layer", brush=False)
        self._training = curve_chart("training", "step", brush=True)
        self._legend = Div(name="legend", stylesheets=[style], sizing_mode="stretch_width")
        self._training.figure.on_event(SelectionGeometry, self._brushed)

    @property
    def layout(self) -> list[LayoutDOM]:
        """The figures side by side, one above the other on a narrow screen."""
        figures = row(
            self._depth.figure,
            self._training.figure,
            sizing_mode="stretch_width",
            stylesheets=[wrapped()],
        )
        return [self._legend, figures]

    def draw(self) -> None:
        """Draw what is chosen."""
        chosen = self._choices
        models = chosen.models
        site, metric, population = chosen.site, chosen.metric, chosen.population
        values = self._live.values(chosen.corpus, site, metric, population, models)
        label = depth_dimension(site) or "no layers"
        if self._depth.figure.xaxis.axis_label != label:
            self._depth.figure.xaxis.axis_label = label
        colours = _coloured(models, self._colours)
        keep = np.isin(values.depth, list(chosen.layers))
        fill_depth(self._depth, values.where(keep), chosen.steps, colours)
        fill_training(self._training, values, chosen.layers, colours)
        self._title(models, colours, values)

    def _title(self, models: Sequence[str], colours: dict[str, str], values: Values) -> None:
        site = self._choices.site
        metric = metrics_of(site).get(self._choices.metric)
        if metric is None or not len(values.value):
            self._legend.text = (
                "<h2>Nothing is computed yet for this choice</h2>"
                "<p>Ask for a metric at the end of this page.</p>"
            )
            return
        title = metric.long_name + ("" if metric.units == "1" else f" ({metric.units})")
        bars = _BARS[bool(set(HEADS) & set(site_variable(site).dims))]
        each = depth_dimension(site) or "model"
        keys = " ".join(
            f'<span style="color:{colours[name]}">●</span> {escape(name)}&emsp;' for name in models
        )
        self._legend.text = (
            f"<h2>{escape(title)} of {escape(site)}, rows: {escape(self._choices.population)}</h2>"
            f"<p>{keys}</p><p>Over depth: a curve a step, late steps strong. Over training: a curve"
            f" a {each}, deep ones strong; drag along it to choose steps. {bars}</p>"
            + _told_samples(values)
        )

    def _brushed(self, event: Event) -> None:
        if not isinstance(event, SelectionGeometry) or not event.final:
            return
        geometry = event.geometry
        if geometry is not None and geometry["type"] == "rect":
            self._choices.choose_steps(geometry["x0"], geometry["x1"], along_steps)


def _told_samples(values: Values) -> str:
    """Say which samples values are of, with care where they are several."""
    told = tell_samples(values.sample.tolist())
    if told.startswith(SEVERAL):
        return (
            f"<p><strong>Values of {escape(told)}.</strong> Part of what differs between them comes"
            " from that alone; point at a value to see its own.</p>"
        )
    return f"<p>Values of one sample: {escape(told)}.</p>" if told else ""


def _coloured(models: Sequence[str], colours: Sequence[str]) -> dict[str, str]:
    return {name: colours[number % len(colours)] for number, name in enumerate(models)}
