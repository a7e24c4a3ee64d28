"""The study of characters: is the long tail of rare tokens what makes models anisotropic?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from flows.studies.corpora import CHARACTER_CORPUS
from flows.studies.grids import draw_metrics
from flows.studies.sentences import tell_populations
from flows.studies.study import DISTINCT_IDS, RARE_SHARE, Measured, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COSINE: Final = "average_cosine"
_DEPTH: Final = "relative_depth"


def _draw(study: Study, measured: Measured) -> Mapping[str, Figure]:
    return {"depth": draw_metrics(study, measured, study.metrics, x=_DEPTH)}


def _tell(study: Study, measured: Measured) -> Sequence[str]:
    told = [sentence for model in measured.models for sentence in _told(study, measured, model)]
    highest = {model: _highest(study, measured, model) for model in measured.models}
    tails = {model: _number(measured, model, DISTINCT_IDS) for model in measured.models}
    if len(highest) > 1:
        order = sorted(highest, key=lambda model: tails[model])
        listed = ", ".join(f"{highest[model]:.3g} ({model})" for model in order)
        told.append(
            f"From the fewest to the most distinct ids, the highest average cosine is {listed}."
        )
        alike = _of_one_kind(measured, order)
        told += [_verdict(highest, kind) for kind in alike or [order]]
    return told


def _of_one_kind(measured: Measured, order: Sequence[str]) -> list[list[str]]:
    """Return the models of each type of which there are several numbers of distinct ids."""
    kinds: dict[object, list[str]] = {}
    for model in order:
        kinds.setdefault(measured.facts[model].get("model_type"), []).append(model)
    ids = {model: _number(measured, model, DISTINCT_IDS) for model in order}
    return [kind for kind in kinds.values() if ids[kind[0]] < ids[kind[-1]]]


def _verdict(highest: Mapping[str, float], order: Sequence[str]) -> str:
    few, many = order[0], order[-1]
    if highest[few] >= highest[many]:
        return (
            f"{few}, with the fewest, reaches no less than {many}, with the most: a long tail of"
            " rare ids is not needed for anisotropy."
        )
    return f"{few}, with the fewest, reaches less than {many}, with the most."


def _told(study: Study, measured: Measured, model: str) -> list[str]:
    ids, rare = (_number(measured, model, fact) for fact in (DISTINCT_IDS, RARE_SHARE))
    return [
        f"{model}: its {_rows(measured, model):,} tokens have {ids:.0f} distinct ids, the rarer"
        f" half of which make up {rare:.2%} of them; the average cosine of its blocks reaches"
        f" {_highest(study, measured, model):.3g}.",
        tell_populations(study, measured, model, _COSINE, _DEPTH),
    ]


def _highest(study: Study, measured: Measured, model: str) -> float:
    curve = measured.curve(model, _COSINE, _DEPTH, study.population)
    return float("nan") if curve is None else float(np.nanmax(curve.y[1:]))


def _rows(measured: Measured, model: str) -> int:
    return int(measured.of(model)["n"].sel(population="all").max())


def _number(measured: Measured, model: str, fact: str) -> float:
    value = measured.facts[model].get(fact)
    return float(value) if isinstance(value, int | float) else float("nan")


CHARACTERS: Final = Study(
    name="characters",
    title="Average cosine by layer, words against characters",
    question="Are models of characters or bytes, which have no long tail of tokens, anisotropic?",
    source="Godey et al. 2024, experiment G2",
    needs=frozenset({"words", "characters"}),
    metrics=("average_cosine", "average_cosine_across", "svd_anisotropy"),
    population="all",
    draw=_draw,
    tell=_tell,
    corpus=CHARACTER_CORPUS,
)
