"""The study of models of pictures and sounds, with convolutions as the control."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from flows.studies.depth import ANISOTROPIC
from flows.studies.grids import draw_metrics
from flows.studies.sentences import tell_populations
from flows.studies.study import Measured, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COSINE: Final = "average_cosine"
_DEPTH: Final = "relative_depth"


def _draw(study: Study, measured: Measured) -> Mapping[str, Figure]:
    return {
        name: draw_metrics(study, measured, study.metrics, x=_DEPTH, models=models)
        for name, models in measured.by_corpus("depth").items()
    }


def _tell(study: Study, measured: Measured) -> Sequence[str]:
    told = []
    for model in measured.models:
        curve = measured.curve(model, _COSINE, _DEPTH, study.population)
        if curve is None:
            continue
        peak, above = int(np.nanargmax(curve.y)), int((curve.y > ANISOTROPIC).sum())
        told += [
            f"{model}, over {measured.corpora[model]}: the average cosine lies between"
            f" {np.nanmin(curve.y):.3g} and {curve.y[peak]:.3g}, highest at relative depth"
            f" {curve.x[peak]:.2f}; it is above {ANISOTROPIC} in {above} of {len(curve.y)} layers.",
            tell_populations(study, measured, model, _COSINE, _DEPTH),
        ]
    return told


MODALITIES: Final = Study(
    name="modalities",
    title="Average cosine by layer beyond text",
    question="Are models of pictures and sounds anisotropic as well, and networks of convolutions?",
    source="Godey et al. 2024, experiment G3",
    needs=frozenset({"vision", "speech", "convolution"}),
    metrics=("average_cosine", "drift_ratio", "svd_anisotropy"),
    population="all",
    draw=_draw,
    tell=_tell,
)
