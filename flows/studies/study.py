"""What a study is, and the results that it draws and tells about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from analysis.curves import Abscissa, Curve, curves
from flows.studies.sources import Need
from store.schema import LAYER, MODEL, POPULATION, STEP

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Measured:
    """Results of the models of a study over one corpus.

    Attributes:
        results: Metrics, standard errors and numbers of rows (model, step, layer, population).
        corpus: Name of the corpus.
        snapshot: Snapshot of the store that they were read at.
        causal: For each model, whether its tokens attend only to earlier ones.
    """

    results: xr.Dataset
    corpus: str
    snapshot: str
    causal: Mapping[str, bool]

    @property
    def models(self) -> list[str]:
        """The models, in the order in which they are shown."""
        return [str(name) for name in self.results[MODEL].values]

    @property
    def populations(self) -> list[str]:
        """The populations of rows."""
        return [str(name) for name in self.results[POPULATION].values]

    @property
    def runs(self) -> list[str]:
        """The models of which there are several training steps."""
        return [name for name in self.models if len(self.steps(name)) > 1]

    def kind(self, model: str) -> str:
        """Return ``decoder`` for a causal model, else ``encoder``."""
        return "decoder" if self.causal[model] else "encoder"

    def steps(self, model: str) -> list[int]:
        """Return the training steps of a model."""
        n = self.results["n"].sel({MODEL: model})
        there = n.notnull().any([str(dim) for dim in n.dims if dim != STEP])
        return [int(step) for step in n[STEP].values[there.values]]

    def of(self, model: str) -> xr.Dataset:
        """Return the results of one model, its own steps and layers only."""
        chosen = self.results.sel({MODEL: [model], STEP: self.steps(model)})
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
        values = self.results[metric].sel({POPULATION: population})
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
