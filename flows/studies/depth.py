"""Studies over depth: anisotropy of encoders and decoders, of every model, and drift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from analysis.curves import Curve
from flows.studies.grids import depth_curves, draw_against, draw_metrics
from flows.studies.sentences import tell_populations, tell_shapes, tell_threshold
from flows.studies.study import Measured, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ANISOTROPIC: Final = 0.1
"""Average cosine from which a layer is called anisotropic here; the paper names no number."""

_STRONG: Final = 0.9
"""Correlation from which drift is said to go with the average cosine."""

_FEWEST_LAYERS: Final = 3
"""Layers from which a correlation is told; of two points it would always be one."""


def _draw_text(study: Study, measured: Measured) -> Mapping[str, Figure]:
    return {"depth": draw_metrics(study, measured, study.metrics[:3], x="relative_depth")}


def _tell_text(study: Study, measured: Measured) -> Sequence[str]:
    told = []
    for model in measured.models:
        curve = measured.curve(model, "average_cosine", "relative_depth", study.population)
        if curve is None:
            continue
        best = int(np.nanargmax(curve.y))
        count = int((curve.y > ANISOTROPIC).sum())
        told += [
            f"{model} ({measured.kind(model)}): the average cosine is highest, {curve.y[best]:.3g},"
            f" at relative depth {curve.x[best]:.2f}; it is above {ANISOTROPIC} in {count} of"
            f" {len(curve.y)} layers.",
            tell_populations(study, measured, model, "average_cosine", "relative_depth"),
        ]
    return told


ANISOTROPY_TEXT: Final = Study(
    name="anisotropy-text",
    title="Average cosine by layer, text models",
    question="Is every text model anisotropic in some layer?",
    source="Godey et al. 2024, experiment G1",
    needs=frozenset({"encoder", "decoder", "both"}),
    metrics=("average_cosine", "average_cosine_within", "average_cosine_across"),
    population="all",
    draw=_draw_text,
    tell=_tell_text,
)


def _draw_encoder_decoder(study: Study, measured: Measured) -> Mapping[str, Figure]:
    return {
        "depth": draw_metrics(
            study, measured, study.metrics, x="relative_depth", beside=("typical",)
        )
    }


def _tell_encoder_decoder(study: Study, measured: Measured) -> Sequence[str]:
    told = []
    for population in (study.population, "typical"):
        if population in measured.populations:
            told += tell_threshold(measured, "svd_anisotropy", population, measured.models)
    return told + tell_shapes(study, measured, "svd_anisotropy", "relative_depth", measured.models)


ENCODER_DECODER: Final = Study(
    name="encoder-decoder",
    title="Anisotropy by depth, encoders against decoders",
    question="Is the profile of anisotropy a bell for decoders and flat for encoders?",
    source="Razzhigaev et al. 2024, experiment R1",
    needs=frozenset({"encoder", "decoder", "both"}),
    metrics=("svd_anisotropy", "svd_anisotropy_uncentred", "average_cosine"),
    population="all",
    draw=_draw_encoder_decoder,
    tell=_tell_encoder_decoder,
)


def _draw_drift(study: Study, measured: Measured) -> Mapping[str, Figure]:
    figures = {
        name: draw_metrics(study, measured, study.metrics, x="relative_depth", models=models)
        for name, models in measured.by_corpus("depth").items()
    }
    for name, models in measured.by_corpus("drift-against-cosine").items():
        figures[name] = draw_against(study, measured, "drift_norm", "average_cosine", models)
    return figures


def _tell_drift(study: Study, measured: Measured) -> Sequence[str]:
    found = (depth_curves(study, measured, metric, measured.models) for metric in study.metrics)
    return [
        _correlations(curves[0].label, dict(zip(study.metrics, curves, strict=True)))
        for curves in zip(*found, strict=True)
        if len(curves[0].y) >= _FEWEST_LAYERS
    ]


def _correlations(model: str, found: Mapping[str, Curve]) -> str:
    from scipy.stats import spearmanr

    cosine, norm, ratio = (found[name].y for name in DRIFT.metrics)
    pearson = float(np.corrcoef(norm, cosine)[0, 1])
    by_rank = float(spearmanr(norm, cosine).statistic)
    off = float(np.abs(ratio**2 - cosine).max())
    verdict = "goes with" if pearson > _STRONG else "does not by itself explain"
    return (
        f"{model}: over its {len(norm)} layers the norm of the mean row correlates with the average"
        f" cosine at {pearson:.2f} (by ranks {by_rank:.2f}): drift {verdict} it. The squared drift"
        f" ratio, which equals the average cosine where all norms are equal, is off by up to"
        f" {off:.2g}."
    )


DRIFT: Final = Study(
    name="drift",
    title="Drift of the mean row and average cosine",
    question="Does the drift of the mean explain the average cosine?",
    source="Godey et al. 2024, experiment G4",
    needs=frozenset({"encoder", "decoder", "both", "vision", "speech", "convolution"}),
    metrics=("average_cosine", "drift_norm", "drift_ratio"),
    population="all",
    draw=_draw_drift,
    tell=_tell_drift,
)
