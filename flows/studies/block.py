"""The study of a single untrained block: a common bias swept, queries and keys scaled."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from analysis.curves import Curve
from flows.studies.grids import rows_note
from flows.studies.head_curves import ATTENTION_ROWS, compare_heads
from flows.studies.panels import Panel, Sweep, draw_panels
from flows.studies.study import Measured, Study
from flows.studies.sweeps import Sweeps, meeting_point
from store.schema import LAYER, POPULATION

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_POPULATION: Final = "all"
_BIAS: Final = "norm N of the common bias of the inputs"
_SCALE: Final = "factor of the query and key weights"
_INPUT, _OUTPUT = "input", "output"
_TOLERATED: Final = 0.005
"""Difference of two average cosines that is not counted: their spread over draws of the rows."""

_SITES: Final = ("mean_norm", "drift_norm", "average_cosine", "mean_row")


def _residual(layer: int) -> dict[str, object]:
    return {LAYER: layer, POPULATION: _POPULATION}


def _draw(study: Study, measured: Measured) -> Mapping[str, Figure]:
    sweeps = Sweeps(measured)
    figures = {}
    configs = sweeps.configs()
    for config in configs:
        suffix = "" if len(configs) == 1 else f"-{config}"
        seeds = max(len(measured.steps(name)) for name in sweeps.blocks(config))
        rows = [f"rows: {_POPULATION}", rows_note(measured, _POPULATION)]
        title = [f"{study.title}: {config}", measured.corpus, *rows, f"mean over {seeds} seeds"]
        if sweeps.along(config, "common_bias"):
            figures[f"bias{suffix}"] = draw_panels(title, _bias_panels(sweeps, config))
        scaled = _scale_panels(sweeps, config)
        if scaled:
            figures[f"scale{suffix}"] = draw_panels(title, scaled)
    return figures


def _bias_panels(sweeps: Sweeps, config: str) -> list[Panel]:
    blocks = sweeps.along(config, "common_bias")
    x = Sweep(_BIAS, tuple(blocks))
    drawn = sweeps.values_of("bias_std", config)[1:]

    def both(variable: str) -> list[Curve]:
        curves = [
            sweeps.curve(label, blocks, variable, _residual(layer))
            for layer, label in enumerate((_INPUT, _OUTPUT))
        ]
        for deviation in drawn:
            own = sweeps.along(config, "common_bias", bias_std=deviation)
            label = f"{_OUTPUT}, biases drawn ({deviation:g})"
            curves.append(sweeps.curve(label, own, variable, _residual(1)))
        return curves

    def one(label: str, variable: str, pick: Mapping[str, object]) -> list[Curve]:
        return [sweeps.curve(label, blocks, variable, pick)]

    return [
        Panel("average cosine similarity (not centred)", x, both("average_cosine")),
        Panel("mean norm of the rows", x, both("mean_norm"), logarithmic=True),
        Panel("share of the first component (centred)", x, both("svd_anisotropy")),
        Panel(ATTENTION_ROWS["attention_max"], x, one("attention", "attention_max", {})),
        *_head_panels(x, one),
    ]


def _scale_panels(sweeps: Sweeps, config: str) -> list[Panel]:
    biases = [
        bias
        for bias in sweeps.values_of("common_bias", config)
        if len(sweeps.along(config, "query_key_scale", common_bias=bias)) > 1
    ]
    by_bias = {bias: sweeps.along(config, "query_key_scale", common_bias=bias) for bias in biases}
    if not by_bias:
        return []
    x = Sweep(_SCALE, tuple(sorted({scale for blocks in by_bias.values() for scale in blocks})))

    def each(label: str, variable: str, pick: Mapping[str, object]) -> list[Curve]:
        return [
            sweeps.curve(f"{label + ', ' if label else ''}N = {bias:g}", blocks, variable, pick)
            for bias, blocks in by_bias.items()
        ]

    sharp = [Panel(label, x, each("", site, {})) for site, label in ATTENTION_ROWS.items()]
    cosine = Panel(
        "average cosine of the outputs (not centred)", x, each("", "average_cosine", _residual(1))
    )
    return [*sharp, cosine, *_head_panels(x, each)]


def _head_panels(
    x: Sweep, curves: Callable[[str, str, Mapping[str, object]], list[Curve]]
) -> list[Panel]:
    rows = {POPULATION: _POPULATION}
    return [
        Panel(
            "norm of a query, of a key",
            x,
            curves("queries", "query_mean_norm", rows) + curves("keys", "key_mean_norm", rows),
            logarithmic=True,
        ),
        Panel(
            "average cosine within queries, within keys",
            x,
            curves("queries", "query_average_cosine", rows)
            + curves("keys", "key_average_cosine", rows),
        ),
    ]


def _tell(_study: Study, measured: Measured) -> Sequence[str]:
    sweeps = Sweeps(measured)
    return [sentence for config in sweeps.configs() for sentence in _told(sweeps, config)]


def _told(sweeps: Sweeps, config: str) -> list[str]:
    blocks = sweeps.along(config, "common_bias")
    if not blocks:
        return []

    def curve(variable: str, layer: int) -> Curve:
        return sweeps.curve("", blocks, variable, _residual(layer))

    given, got = curve("average_cosine", 0), curve("average_cosine", 1)
    pairs = ", ".join(
        f"{bias:g}: {before:.4f} → {after:.4f}"
        for bias, before, after in zip(given.x, given.y, got.y, strict=True)
    )
    below = [bias for bias, d in zip(given.x, got.y - given.y, strict=True) if d < -_TOLERATED]
    verdict = (
        "the outputs are at least as anisotropic as the inputs at every N"
        if not below
        else f"the outputs are less anisotropic than the inputs at N = {_listed(below)}"
    )
    norms = curve("mean_norm", 1)
    told = [
        f"{config}: average cosine of inputs → outputs by the norm N of the common bias: {pairs}."
        f" So {verdict}.",
        f"{config}: the mean norm of the outputs is {norms.y.min():.4f} to {norms.y.max():.4f} over"
        " all N.",
    ]
    share = curve("svd_anisotropy", 1)
    told.append(
        f"{config}: centred, the share of the first component of the outputs stays between"
        f" {share.y.min():.4f} and {share.y.max():.4f}: the anisotropy is one of the mean alone."
    )
    told.append(_meeting(config, curve("mean_norm", 0), norms, sweeps.width(config)))
    return told + _told_of_scales(sweeps, config)


def _meeting(config: str, given: Curve, got: Curve, width: float) -> str:
    """Say at which N the norms of inputs and outputs are equal, by interpolation."""
    place = meeting_point(given.x, given.y - got.y)
    if place is None:
        return f"{config}: within these N the norms of inputs and outputs do not meet."
    return (
        f"{config}: the norms of inputs and outputs are equal at N* = {place:.2f}; the square root"
        f" of the width {width:g} is {math.sqrt(width):.2f}."
    )


def _told_of_scales(sweeps: Sweeps, config: str) -> list[str]:
    told = []
    for bias in sweeps.values_of("common_bias", config):
        blocks = sweeps.along(config, "query_key_scale", common_bias=bias)
        if len(blocks) < 2:
            continue
        found = [
            sweeps.curve("", blocks, variable, pick)
            for variable, pick in (
                ("attention_logit_deviation", {}),
                ("attention_max", {}),
                ("attention_entropy", {}),
                ("average_cosine", _residual(1)),
            )
        ]
        steps = "; ".join(
            f"× {scale:g}: deviation {deviation:.3g}, largest {largest:.3g}, entropy {entropy:.3g},"
            f" cosine {cosine:.4f}"
            for scale, deviation, largest, entropy, cosine in zip(
                found[0].x, *(curve.y for curve in found), strict=True
            )
        )
        told.append(f"{config}, N = {bias:g}, queries and keys scaled: {steps}.")
    return told


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


UNTRAINED_BLOCK: Final = Study(
    name="untrained-block",
    title="One untrained block",
    question="Does a block that has learnt nothing make its rows more alike, and how sharp is it?",
    source="Godey et al. 2024, experiments G5 and G6",
    needs=frozenset({"block"}),
    metrics=("average_cosine", "mean_norm", "svd_anisotropy"),
    population=_POPULATION,
    draw=_draw,
    tell=_tell,
    populations=(_POPULATION,),
    site_populations=(_POPULATION, "unit"),
    site_metrics={"query": _SITES, "key": _SITES},
    attention_rows=tuple(ATTENTION_ROWS),
    derive=compare_heads,
)
