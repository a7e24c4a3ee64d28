"""Keeping a page small: which steps and components of long axes are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.intp]

MOST_COMPONENTS: Final = 48
"""Points of a spectrum: on a logarithmic axis more cannot be told apart."""


@dataclass(frozen=True)
class Limits:
    """How many steps of each model a page shows.

    Attributes:
        steps: Steps of what is one number a layer.
        wide_steps: Steps of what is a vector a layer: spectra, scale curves, heads.
    """

    steps: int
    wide_steps: int


_ALL: Final = 1 << 30

LADDER: Final = (
    Limits(_ALL, _ALL),
    Limits(_ALL, 24),
    *(Limits(steps, max(2, steps // 6)) for steps in (128, 96, 64, 48, 40, 32, 24)),
    *(Limits(steps, 3) for steps in (20, 18, 16, 14, 12, 10)),
    *(Limits(steps, 2) for steps in (8, 6, 4, 3, 2)),
)
"""From everything down to the first and last step of each model."""


def spread(size: int, limit: int) -> Positions:
    """Return at most so many positions along an axis, by even rank, both ends among them."""
    if size <= limit:
        return np.arange(size)
    return np.unique(np.linspace(0, size - 1, limit).round().astype(np.intp))


def spread_logarithmically(size: int, limit: int) -> Positions:
    """Return at most so many positions, denser at the start, both ends among them."""
    if size <= limit:
        return np.arange(size)
    return np.unique(np.geomspace(1, size, limit).round().astype(np.intp)) - 1
