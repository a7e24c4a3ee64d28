"""The study of a single untrained block: a common bias swept, queries and keys scaled."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import xarray as xr

from analysis.curves import Curve
from analysis.query_key import compare_queries_keys
from flows.studies.panels import Panel, Sweep, draw_panels
from flows.studies.study import Measured, Study
from store.schema import BLOCK, HEAD, KEY_VALUE_HEAD, LAYER, MODEL, POPULATION, STEP

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SETTINGS: Final = ("common_bias", "query_key_scale", "bias_std")
_POPULATION: Final = "all"
_BIAS: Final = "norm N of the common bias of the inputs"
_SCALE: Final = "factor of the query and key weights"
_INPUT, _OUTPUT = "input", "output"
_TOLERATED: Final = 0.005
"""Difference of two average cosines that is not counted: their spread over draws of the rows."""

_SITES: Final = ("mean_norm", "drift_norm", "average_cosine", "mean_row")
_SHARPNESS: Final = {
    "attention_logit_deviation": "deviation of the attention logits of a row",
    "attention_max": "largest probability of a row",
    "attention_entropy": "entropy of a row over that of equal parts",
}


def compare_heads(results: xr.Dataset) -> xr.Dataset:
    """Add how queries and keys of each head lie to each other; drop the mean rows themselves."""
    populations = [str(name) for name in results[POPULATION].values]
    rows = "content" if "content" in populations else populations[0]
    compared = compare_queries_keys(results, population=rows)
    plain = results.drop_vars([name for name in results if str(name).endswith("mean_row")])
    return plain.merge(compared)


class _Sweeps:
    """The results of blocks by their settings, as curves over one of them."""

    def __init__(self, measured: Measured) -> None:
        self._measured = measured
        self._settings = {
            name: tuple(_number(measured.facts[name].get(key)) for key in _SETTINGS)
            for name in measured.models
            if _SETTINGS[0] in measured.facts[name]
        }

    def configs(self) -> list[str]:
        """Return what the blocks are blocks of, in the order in which they are shown."""
        return list(dict.fromkeys(map(self.config, self._settings)))

    def config(self, name: str) -> str:
        """Return what a block is a block of."""
        return str(self._measured.facts[name].get("model_type", "block"))

    def width(self, config: str) -> float:
        """Return the width of a config's rows."""
        found = (name for name in self._settings if self.config(name) == config)
        return _number(self._measured.facts[next(found)].get("width"))

    def along(self, config: str, setting: str, **others: float) -> dict[float, str]:
        """Return the blocks of a config by one setting, where the others have given values."""
        usual = {"common_bias": 0.0, "query_key_scale": 1.0, "bias_std": 0.0}
        wanted = usual | others
        found = {}
        for name, values in self._settings.items():
            own = dict(zip(_SETTINGS, values, strict=True))
            value = own.pop(setting)
            if self.config(name) == config and all(wanted[key] == own[key] for key in own):
                found[value] = name
        return dict(sorted(found.items()))

    def values_of(self, setting: str, config: str) -> list[float]:
        """Return the values of a setting among the blocks of a config, ascending."""
        place = _SETTINGS.index(setting)
        own = [values for name, values in self._settings.items() if self.config(name) == config]
        return sorted({values[place] for values in own})

    def curve(
        self, label: str, blocks: Mapping[float, str], variable: str, pick: Mapping[str, object]
    ) -> Curve:
        """Return a variable over a setting: its mean over seeds, heads and blocks.

        Args:
            label: What the curve is called.
            blocks: Blocks by the value of the setting.
            variable: Name of a result.
            pick: Labels of dimensions to take.
        """
        means, errors = [], []
        for name in blocks.values():
            values = self._seeds(variable, name, pick)
            means.append(values.mean())
            spread = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
            errors.append(spread)
        return Curve(label, np.array(list(blocks)), np.array(means), np.array(errors), {})

    def _seeds(self, variable: str, name: str, pick: Mapping[str, object]) -> np.ndarray:
        values = self._measured.means[variable].sel({MODEL: name, **pick})
        inner = [dim for dim in values.dims if dim in (BLOCK, HEAD, KEY_VALUE_HEAD)]
        found: np.ndarray = values.mean(inner).dropna(STEP).values
        return found


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _residual(layer: int) -> dict[str, object]:
    return {LAYER: layer, POPULATION: _POPULATION}


def _draw(study: Study, measured: Measured) -> Mapping[str, Figure]:
    sweeps = _Sweeps(measured)
    figures = {}
    configs = sweeps.configs()
    for config in configs:
        suffix = "" if len(configs) == 1 else f"-{config}"
        title = [f"{study.title}: {config}", "mean over seeds, heads and rows"]
        if sweeps.along(config, "common_bias"):
            figures[f"bias{suffix}"] = draw_panels(title, _bias_panels(sweeps, config))
        scaled = _scale_panels(sweeps, config)
        if scaled:
            figures[f"scale{suffix}"] = draw_panels(title, scaled)
    return figures


def _bias_panels(sweeps: _Sweeps, config: str) -> list[Panel]:
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

    return [
        Panel("average cosine similarity (not centred)", x, both("average_cosine")),
        Panel("mean norm of the rows", x, both("mean_norm"), logarithmic=True),
        Panel("share of the first component (centred)", x, both("svd_anisotropy")),
        *_head_panels(
            sweeps, x, lambda label, variable, pick: [sweeps.curve(label, blocks, variable, pick)]
        ),
    ]


def _scale_panels(sweeps: _Sweeps, config: str) -> list[Panel]:
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

    sharp = [Panel(label, x, each("", site, {})) for site, label in _SHARPNESS.items()]
    cosine = Panel(
        "average cosine of the outputs (not centred)", x, each("", "average_cosine", _residual(1))
    )
    return [*sharp, cosine, *_head_panels(sweeps, x, each)[1:]]


def _head_panels(
    _sweeps: _Sweeps,
    x: Sweep,
    curves: Callable[[str, str, Mapping[str, object]], list[Curve]],
) -> list[Panel]:
    rows = {POPULATION: _POPULATION}
    return [
        Panel(_SHARPNESS["attention_max"], x, curves("attention", "attention_max", {})),
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
    sweeps = _Sweeps(measured)
    return [sentence for config in sweeps.configs() for sentence in _told(sweeps, config)]


def _told(sweeps: _Sweeps, config: str) -> list[str]:
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


def meeting_point(x: np.ndarray, difference: np.ndarray) -> float | None:
    """Return where a difference first turns from below 0, on the line between its points.

    Args:
        x: Where it was measured, ascending.
        difference: Its values there.
    """
    for i in np.flatnonzero((difference[:-1] < 0) & (difference[1:] >= 0)):
        part = -difference[i] / (difference[i + 1] - difference[i])
        return float(x[i] + part * (x[i + 1] - x[i]))
    return None


def _told_of_scales(sweeps: _Sweeps, config: str) -> list[str]:
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
    site_metrics={"query": _SITES, "key": _SITES},
    attention_rows=tuple(_SHARPNESS),
    derive=compare_heads,
)
