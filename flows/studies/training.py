"""Studies over training steps, and of intrinsic dimension by every estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from flows.studies.grids import draw_metrics
from flows.studies.sentences import tell_shapes
from flows.studies.shape import WORDS, Kind, shape_of
from flows.studies.study import Measured, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from analysis.curves import Abscissa

_SHAPE_METRICS: Final = ("svd_anisotropy", "two_nn")


def _draw_shape(study: Study, measured: Measured) -> Mapping[str, Figure]:
    figures = {"depth": draw_metrics(study, measured, _SHAPE_METRICS, x="relative_depth")}
    if measured.runs:
        figures["training"] = draw_metrics(
            study, measured, _SHAPE_METRICS, x="step", models=measured.runs
        )
    return figures


def _tell_shape(study: Study, measured: Measured) -> Sequence[str]:
    told = tell_shapes(study, measured, "svd_anisotropy", "relative_depth", measured.models)
    for metric in _SHAPE_METRICS:
        told += tell_shapes(study, measured, metric, "step", measured.runs)
    return told


SHAPE_OF_LEARNING: Final = Study(
    name="shape-of-learning",
    title="The shape of learning",
    question=(
        "Is anisotropy a bell over a decoder's depth, does it grow in training, and does the"
        " intrinsic dimension rise, then fall?"
    ),
    source="Razzhigaev et al. 2024, experiments R1, R2 and R3",
    needs=frozenset({"encoder", "decoder", "both", "trajectory"}),
    metrics=_SHAPE_METRICS,
    population="all",
    draw=_draw_shape,
    tell=_tell_shape,
)

_DYNAMIC_METRICS: Final = ("svd_anisotropy", "average_cosine", "two_nn", "effective_rank")


def _draw_dynamics(study: Study, measured: Measured) -> Mapping[str, Figure]:
    runs = measured.runs or measured.models
    return {"training": draw_metrics(study, measured, study.metrics, x="step", models=runs)}


def _tell_dynamics(study: Study, measured: Measured) -> Sequence[str]:
    if not measured.runs:
        return ["No model has more than one training step: there is no course of training to tell."]
    return [
        sentence
        for metric in study.metrics
        for sentence in tell_shapes(study, measured, metric, "step", measured.runs)
    ]


TRAINING_DYNAMICS: Final = Study(
    name="training-dynamics",
    title="Geometry over training",
    question="How do anisotropy, average cosine, dimension and rank change while a model learns?",
    source="Razzhigaev et al. 2024, experiments R2 and R3",
    needs=frozenset({"trajectory"}),
    metrics=_DYNAMIC_METRICS,
    population="content",
    draw=_draw_dynamics,
    tell=_tell_dynamics,
)

_ESTIMATORS: Final = (
    "two_nn",
    "two_nn_mle",
    "two_nn_lowest_fifth",
    "gride",
    "mle",
    "mle_mean",
    "mom",
    "mada",
    "participation_ratio",
)


def _draw_dimension(study: Study, measured: Measured) -> Mapping[str, Figure]:
    figures = {"depth": draw_metrics(study, measured, study.metrics, x="relative_depth")}
    if measured.runs:
        figures["training"] = draw_metrics(
            study, measured, study.metrics, x="step", models=measured.runs
        )
    return figures


def _tell_dimension(study: Study, measured: Measured) -> Sequence[str]:
    told = [_agreement(study, measured, model, "relative_depth") for model in measured.models]
    told += [_agreement(study, measured, model, "step") for model in measured.runs]
    for metric in ("two_nn", "mle"):
        told += tell_shapes(study, measured, metric, "step", measured.runs)
    return told


def _agreement(study: Study, measured: Measured, model: str, x: Abscissa) -> str:
    """Say whether the estimators agree on what the curve of a model does."""
    by_kind: dict[Kind, list[str]] = {}
    peaks = []
    for metric in study.metrics:
        rows = measured.shown_population(metric, study.population)
        curve = measured.curve(model, metric, x, rows)
        if curve is None:
            continue
        shape = shape_of(curve)
        by_kind.setdefault(shape.kind, []).append(metric)
        peaks.append(f"{metric} {shape.peak.y:.3g} at {shape.peak.x:.3g}")
    over = "training" if x == "step" else "depth"
    said = "; ".join(f"{WORDS[kind]} by {', '.join(names)}" for kind, names in by_kind.items())
    verdict = "agree" if len(by_kind) == 1 else "do not agree"
    return f"{model}, over {over}: the estimators {verdict} in shape: {said}. Peaks: " + (
        "; ".join(peaks) + "."
    )


INTRINSIC_DIMENSION: Final = Study(
    name="intrinsic-dimension",
    title="Intrinsic dimension by every estimator",
    question="Do the estimators agree in shape over depth and training?",
    source="Razzhigaev et al. 2024, experiments R3 and R4",
    needs=frozenset({"encoder", "decoder", "both", "trajectory"}),
    metrics=_ESTIMATORS,
    population="content",
    draw=_draw_dimension,
    tell=_tell_dimension,
)
