"""Numbers of tokens by position in their sequence, as of a key that heads rest on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.rows import Indices, Rows

Floats = npt.NDArray[np.float64]

POSITIONS: Final = 64
"""Positions told apart, from the first on; tokens after them are left out."""


@dataclass(frozen=True)
class PositionProfile:
    """Sums over the tokens at each position.

    Attributes:
        n: Number of tokens (token_position).
        totals: Σ of their values (token_position).
    """

    n: Floats
    totals: Floats


def profile_positions(
    blocks: Iterable[tuple[Indices, Rows]],
    *,
    position: npt.NDArray[np.integer],
    bounds: Indices,
) -> list[PositionProfile]:
    """Sum the tokens at each position, by group of sequences.

    Args:
        blocks: Numbers of the tokens of a population, and their values (token, 1).
        position: Position of every token of the layer in its sequence (token).
        bounds: First token of every group, and the number of tokens (group + 1).
    """
    shape = (len(bounds) - 1, POSITIONS)
    n, totals = np.zeros((2, *shape))
    for tokens, values in blocks:
        places = position[tokens]
        used = (places >= 0) & (places < POSITIONS)
        groups = np.searchsorted(bounds, tokens[used], side="right") - 1
        cells = groups * POSITIONS + places[used]
        n += np.bincount(cells, minlength=n.size).reshape(shape)
        total = np.bincount(cells, values[used, 0].astype(np.float64), minlength=n.size)
        totals += total.reshape(shape)
    return [PositionProfile(*each) for each in zip(n, totals, strict=True)]


def merge_profiles(profiles: Sequence[PositionProfile]) -> PositionProfile:
    """Return the profile of several groups together."""
    return PositionProfile(
        np.sum([one.n for one in profiles], axis=0),
        np.sum([one.totals for one in profiles], axis=0),
    )
