"""What a study is, and the results that it draws and tells about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import xarray as xr

from analysis.curves import Abscissa, Curve, curves
from flows.demo.stages import CORPUS
from flows.studies.sources import Need
from store.schema import LAYER, MODEL, POPULATION, STEP

if TYPE_CHECKING:
    from matplotlib.figure import Figure


DISTINCT_IDS: Final = "distinct_ids"
"""Fact of a model: how many different ids its tokens have."""

RARE_SHARE: Final = "rare_share"
"""Fact of a model: which part of its tokens has one of the rarer half of these ids."""


@dataclass(frozen=True)
class Measured:
    """Results of the models of a study.

    Runs of one model with several seeds stand side by side in ``results``, and as one model, their
    mean, in ``means``, whose standard errors are those of that mean.

    Attributes:
        results: Metrics, standard errors and numbers of rows (model, step, layer, population), and
            whatever else the study asks for.
        means: The same with one model for all seeds of a run.
        corpora: For each model of either, the corpus that it was run over.
        store: The store.
        snapshot: Snapshot of the store that they were read at.
        paths: For each model of ``results``, its group in the store.
        facts: For each model of either, the attributes of its group in the store.
        members: For each model of ``means``, the models of ``results`` that it is the mean of.
    """

    results: xr.Dataset
    means: xr.Dataset
    corpora: Mapping[str, str]
    store: str
    snapshot: str
    paths: Mapping[str, str]
    facts: Mapping[str, Mapping[str, object]]
    members: Mapping[str, Sequence[str]]

    @property
    def models(self) -> list[str]:
        """The models, in the order in which they are shown."""
        return [str(name) for name in self.means[MODEL].values]

    @property
    def populations(self) -> list[str]:
        """The populations of rows."""
        return [str(name) for name in self.means[POPULATION].values]

    @property
    def runs(self) -> list[str]:
        """The models of which there are several training steps."""
        return [name for name in self.models if len(self.steps(name)) > 1]

    @property
    def corpus(self) -> str:
        """The corpora that the results are about, for a title."""
        return ", ".join(dict.fromkeys(self.corpora[name] for name in self.models))

    def by_corpus(self, figure: str) -> dict[str, list[str]]:
        """Return the models of each corpus, by the name of a figure of them.

        Args:
            figure: Name of the figure, to which that of the corpus is added where there are
                several.
        """
        found: dict[str, list[str]] = {}
        for model in self.models:
            found.setdefault(self.corpora[model], []).append(model)
        return {
            f"{figure}-{name}" if len(found) > 1 else figure: own for name, own in found.items()
        }

    def seeds(self, model: str) -> int:
        """Return how many seeds a model of ``means`` is the mean of."""
        return len(self.members[model])

    def kind(self, model: str) -> str:
        """Return ``decoder`` for a causal model, else ``encoder``."""
        return "decoder" if self.facts[model].get("causal", True) else "encoder"

    def steps(self, model: str) -> list[int]:
        """Return the training steps of a model."""
        n = self.means["n"].sel({MODEL: model})
        there = n.notnull().any([str(dim) for dim in n.dims if dim != STEP])
        return [int(step) for step in n[STEP].values[there.values]]

    def of(self, model: str) -> xr.Dataset:
        """Return the results of one model, its own steps and layers only."""
        chosen = self.means.sel({MODEL: [model], STEP: self.steps(model)})
        n = chosen["n"]
        there = n.notnull().any([str(dim) for dim in n.dims if dim != LAYER])
        return chosen.sel({LAYER: n[LAYER].values[there.values]})

    def blocks(self, model: str) -> xr.Dataset:
        """Return the results of one model without layer 0.

        The embeddings have no more distinct rows than the vocabulary has tokens.
        """
        own = self.of(model)
        return own.sel({LAYER: own[LAYER].values[own[LAYER].values > 0]})

    def shown_population(self, metric: str, population: str) -> str:
        """Return a population if the metric was computed for it, else ``content``.

        Neighbours are sought among the rows of ``content`` alone unless told otherwise.
        """
        values = self.means[metric].sel({POPULATION: population})
        if np.isfinite(values).any() or "content" not in self.populations:
            return population
        return "content"

    def curve(self, model: str, metric: str, x: Abscissa, population: str) -> Curve | None:
        """Return a metric over depth at the last step, or over steps as the mean over blocks.

        Returns:
            The curve, None where there is no value.
        """
        own = self.blocks(model) if x == STEP else self.of(model)
        if not np.isfinite(own[metric].sel({POPULATION: population})).any():
            return None
        (curve,) = curves(own, metric, x=x, hue="model", population=population)
        return curve


@dataclass(frozen=True)
class Study:
    """An experiment that is one command.

    Attributes:
        name: What is typed.
        title: What it is called in a figure.
        question: What it asks, in a sentence.
        source: The experiments of the papers that it carries out.
        needs: Kinds of models that it looks at.
        metrics: Metrics that it needs, of the residual stream.
        population: Rows that its figures are about; the grid of controls shows the others.
        draw: Returns the figures by name.
        tell: Returns what was found, a sentence each.
        populations: Rows that the metrics of the residual stream are computed for, None for all
            choices.
        site_metrics: Metrics that it needs of other sites, by site, for the rows of
            ``site_populations``.
        site_populations: Rows that these are computed for.
        attention_rows: Sites of one number a head and token whose means and quantiles it needs.
        derive: Adds to the results what is computed from them, before seeds are averaged.
        corpus: The corpus of texts, unless another one is named.
        control_metrics: Metrics of the residual stream that the grid of controls needs besides.
    """

    name: str
    title: str
    question: str
    source: str
    needs: frozenset[Need]
    metrics: tuple[str, ...]
    population: str
    draw: Callable[[Study, Measured], Mapping[str, Figure]]
    tell: Callable[[Study, Measured], Sequence[str]]
    populations: tuple[str, ...] | None = None
    site_metrics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    site_populations: tuple[str, ...] = ("content", "unit")
    attention_rows: tuple[str, ...] = ()
    derive: Callable[[xr.Dataset], xr.Dataset] | None = None
    corpus: str = CORPUS
    control_metrics: tuple[str, ...] = ()

    @property
    def all_metrics(self) -> tuple[str, ...]:
        """The metrics of the residual stream, each once."""
        return tuple(dict.fromkeys((*self.metrics, *self.control_metrics)))

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites whose activations have to be in the store, besides the usual ones."""
        return (*self.site_metrics, *self.attention_rows)
