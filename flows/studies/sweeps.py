"""Results of single blocks by the settings that they differ in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from analysis.curves import Curve
from flows.studies.study import Measured
from store.schema import BLOCK, HEAD, KEY_VALUE_HEAD, MODEL, STEP

_SETTINGS: Final = ("common_bias", "query_key_scale", "bias_std")


class Sweeps:
    """The results of blocks by their settings, as curves over one of them."""

    def __init__(self, measured: Measured) -> None:
        """Sort the blocks among the models that were measured by their settings."""
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

    def blocks(self, config: str) -> list[str]:
        """Return the names of the blocks of a config."""
        return [name for name in self._settings if self.config(name) == config]

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
        return sorted({self._settings[name][place] for name in self.blocks(config)})

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
