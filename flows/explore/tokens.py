"""Tokens of one layer in a plane, and the nearest tokens of one of them in every layer."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bokeh.layouts import row
from bokeh.models import InlineStyleSheet, LayoutDOM
from bokeh.models.widgets import AutocompleteInput, Div, Select, Slider

from analysis.token_map import (
    Neighborhood,
    Plane,
    nearest_tokens,
    principal_plane,
    sampled_rows,
)
from analysis.token_sample import TokenSample, sample_tokens
from flows.explore.background import Background
from flows.explore.charts import fill_tokens, token_chart
from flows.explore.choices import Choices
from flows.explore.events import when_changed
from flows.explore.live import LiveStore
from flows.explore.sites import depths_of, steps_with
from flows.explore.style import common_options, wrapped
from store.errors import StoreError
from store.schema import depth_dimension
from store.slab import slabs


class TokenView:
    """A scatter of sampled tokens, drawn for the model, step and layer that are chosen."""

    def __init__(
        self,
        live: LiveStore,
        choices: Choices,
        style: InlineStyleSheet,
        colours: Sequence[str],
        background: Background,
    ) -> None:
        self._live, self._choices, self._background = live, choices, background
        self._samples: dict[tuple[str, str], TokenSample] = {}
        self._sample: TokenSample | None = None
        self._filling = False
        common = common_options(style)
        self._model = Select(title="Model", name="token-model", **common)
        self._step = Select(title="Step", name="token-step", **common)
        self._layer = Slider(
            title="Layer", name="token-layer", start=0, end=1, value=0, step=1, **common
        )
        self._word = AutocompleteInput(
            title="Nearest tokens of",
            name="token-word",
            min_characters=1,
            case_sensitive=False,
            restrict=False,
            search_strategy="includes",
            placeholder="type a token, or click a point",
            **common,
        )
        self._title = Div(name="token-title", stylesheets=[style], sizing_mode="stretch_width")
        self._table = Div(name="nearest", stylesheets=[style], sizing_mode="stretch_width")
        self._figure, self._source = token_chart(colours[0])
        when_changed(self._model, "value", self._model_chosen)
        when_changed(self._step, "value", self._draw_unless_filling)
        when_changed(self._layer, "value", self._draw_unless_filling)
        when_changed(self._word, "value", self._word_chosen)
        when_changed(self._source.selected, "indices", self._point_chosen)

    @property
    def layout(self) -> list[LayoutDOM]:
        """Title, choices, figure and table."""
        widgets = row(
            self._model,
            self._step,
            self._layer,
            self._word,
            sizing_mode="stretch_width",
            stylesheets=[wrapped()],
        )
        return [self._title, widgets, self._figure, self._table]

    def fill(self) -> None:
        """Offer the models that are chosen above, and draw the tokens of one."""
        models = self._choices.models
        self._filling = True
        self._model.update(options=list(models))
        if self._model.value not in models:
            self._model.value = next(iter(models), "")
        self._fill_model()
        self._filling = False
        self._draw()

    def _fill_model(self) -> None:
        held = self._live.models(self._choices.corpus).get(str(self._model.value))
        site = self._choices.site
        steps = [] if held is None else [str(step) for step in steps_with(held, site)]
        self._step.update(options=list(steps))
        if self._step.value not in steps:
            self._step.value = steps[-1] if steps else ""
        depths = [] if held is None else depths_of(held, site)
        first, last = (depths[0], depths[-1]) if depths else (0, 0)
        self._layer.title = (depth_dimension(site) or "no layers").capitalize()
        if (self._layer.start, self._layer.end) != (first, max(last, first + 1)):
            middle = first + (last - first) // 2
            self._layer.update(
                start=first, end=max(last, first + 1), value=middle, disabled=last <= first
            )

    def _model_chosen(self) -> None:
        if not self._filling:
            self._filling = True
            self._fill_model()
            self._filling = False
            self._draw()

    def _draw_unless_filling(self) -> None:
        if not self._filling:
            self._draw()

    def _draw(self) -> None:
        held = self._live.models(self._choices.corpus).get(str(self._model.value))
        site = self._choices.site
        if held is None or not self._step.value:
            self._title.text = f"<h2>Tokens</h2><p>No {escape(site)} is stored to look at.</p>"
            return
        path, step, layer = held.path, int(self._step.value), int(self._layer.value)
        snapshot = self._live.snapshot
        layers = [layer] if depths_of(held, site) else None
        shown = site if layers is None else f"{site}, {depth_dimension(site)} {layer}"
        self._title.text = f"<h2>Tokens of {escape(shown)}</h2><p>Reading …</p>"

        def work() -> tuple[TokenSample, Plane]:
            sample = self._drawn(path, snapshot)
            found = slabs(
                self._live.repository,
                path,
                site=site,
                steps=[step],
                layers=layers,
                snapshot=snapshot,
            )
            if not found:
                raise StoreError(f"step {step} of {path} has no {shown}: choose another one")
            return sample, principal_plane(sampled_rows(found[0], sample))

        self._background.run(work, lambda found: self._show(*found, shown), self._failed)

    def _drawn(self, path: str, snapshot: str) -> TokenSample:
        """Return the sample of a model: the same for all layers, so that one can be followed."""
        key = path, snapshot
        if key not in self._samples:
            self._samples = {key: sample_tokens(self._live.repository, path, snapshot=snapshot)}
        return self._samples[key]

    def _show(self, sample: TokenSample, plane: Plane, shown: str) -> None:
        if sample is not self._sample:
            self._sample = sample
            self._source.selected.indices = []
            self._table.text = ""
            self._word.completions = sorted(set(sample.words))
        fill_tokens(self._figure, self._source, plane, sample)
        self._figure.visible = True
        first, second = (f"{100 * share:.1f} %" for share in plane.shares)
        self._figure.xaxis.axis_label = f"first component: {first} of the variance"
        self._figure.yaxis.axis_label = f"second component: {second}"
        self._title.text = (
            f"<h2>Tokens of {escape(shown)}</h2><p>{len(sample):,} tokens drawn at random, special"
            " and first ones left out, about their mean. Click one for its nearest.</p>"
        )

    def _word_chosen(self) -> None:
        wanted = str(self._word.value).strip().lower()
        if self._sample is None or not wanted:
            return
        words = [word.strip().lower() for word in self._sample.words]
        if wanted in words:
            self._source.selected.indices = [words.index(wanted)]
        else:
            self._table.text = (
                f'<p class="failure">No token of the sample reads {escape(wanted)!s}.</p>'
            )

    def _point_chosen(self) -> None:
        chosen = self._source.selected.indices
        held = self._live.models(self._choices.corpus).get(str(self._model.value))
        sample = self._sample
        if not chosen or sample is None or held is None:
            return
        row_chosen, step, snapshot = int(chosen[0]), int(self._step.value), sample.snapshot
        site = self._choices.site
        self._table.text = "<p>Reading every depth …</p>"

        def work() -> list[Neighborhood]:
            layers = slabs(
                self._live.repository, held.path, site=site, steps=[step], snapshot=snapshot
            )
            return list(nearest_tokens(layers, sample, row_chosen))

        def show(found: list[Neighborhood]) -> None:
            depth = depth_dimension(site) or ""
            self._table.text = nearest_table(found, sample, row_chosen, depth=depth)

        self._background.run(work, show, self._failed)

    def _failed(self, error: Exception) -> None:
        self._title.text = f'<h2>Tokens</h2><p class="failure">{escape(str(error))}</p>'


def nearest_table(
    found: Sequence[Neighborhood], sample: TokenSample, chosen: int, *, depth: str
) -> str:
    """Return the nearest tokens in each layer or block as an HTML table, the token above it."""
    rows = "".join(
        f"<tr><th scope='row'>{one.layer}</th>"
        + "".join(
            f"<td title='{escape(sample.contexts[place], quote=True)}'>"
            f"{escape(sample.words[place])} <small>{cosine:.2f}</small></td>"
            for place, cosine in zip(one.rows, one.cosine, strict=True)
        )
        + "</tr>"
        for one in found
    )
    told = sample.contexts[chosen] or sample.words[chosen]
    return (
        f"<h2>Nearest tokens of {escape(told)}</h2><p>By cosine about the mean, among the sample."
        f"</p><div class='scroll' tabindex='0'><table><thead><tr><th>{depth}</th>"
        f"<th colspan='9'>nearest first</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )
