"""Sums over the rows of every head of a slab, by population and group of sequences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.errors import NonFiniteRowsError
from analysis.rows import Indices
from store.slab import Slab

Floats = npt.NDArray[np.float64]
Members = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class HeadSums:
    """Sums over some rows h of every head, in float64.

    Attributes:
        totals: Σh (head, head_dim).
        directions: Σh/‖h‖ over rows that are not zero (head, head_dim).
        n_directed: Number of those (head).
    """

    totals: Floats
    directions: Floats
    n_directed: Floats

    @classmethod
    def of(cls, parts: Iterable[HeadSums]) -> HeadSums:
        """Return the sums over the rows of several parts."""
        held = [(one.totals, one.directions, one.n_directed) for one in parts]
        return cls(*(np.sum(each, axis=0) for each in zip(*held, strict=True)))

    def shared_by(self, heads: int) -> HeadSums:
        """Return the sums by query head, of keys that neighbouring heads share."""
        times = heads // len(self.totals)
        return HeadSums(
            *(np.repeat(a, times, axis=0) for a in (self.totals, self.directions, self.n_directed))
        )


@dataclass(frozen=True)
class HeadPair:
    """What is known of the queries of every head, and of the keys of each of these heads."""

    queries: HeadSums
    keys: HeadSums


def sum_heads(
    slab: Slab, members: Sequence[Members], bounds: Indices, *, drop_nonfinite: bool
) -> list[list[HeadSums]]:
    """Sum the rows of every head, reading each chunk once.

    Args:
        slab: Rows by head (head, token, head_dim).
        members: Which rows belong to each of some populations (token).
        bounds: First row of every group of sequences, and the number of rows (group + 1).
        drop_nonfinite: Whether rows with NaN or infinity are left out, instead of refused.

    Returns:
        The sums of each population, by group.

    Raises:
        NonFiniteRowsError: If rows hold NaN or infinity and are not to be dropped.
    """
    heads, _, width = slab.shape
    sizes = (len(members), len(bounds) - 1, heads)
    totals, directions = np.zeros((2, *sizes, width))
    n_directed = np.zeros(sizes)
    for start, block in slab.blocks():
        rows = block.astype(np.float64)
        norms = np.sqrt(np.einsum("htd,htd->ht", rows, rows))
        finite = np.isfinite(norms).all(axis=0)
        if not (drop_nonfinite or finite.all()):
            raise NonFiniteRowsError(
                f"{(~finite).sum()} of {len(finite)} rows of {slab.site} hold NaN or infinity, from"
                f" row {start + int(np.argmin(finite))} on; expected finite activations"
            )
        rows[:, ~finite], norms[:, ~finite] = 0, 0
        units = rows / np.where(norms > 0, norms, 1)[..., None]
        groups = np.searchsorted(bounds, np.arange(start, start + len(finite)), side="right") - 1
        for number, chosen in enumerate(members):
            here = chosen[start : start + len(finite)] & finite
            for group in np.unique(groups[here]).tolist():
                kept = np.flatnonzero(here & (groups == group))
                totals[number, group] += rows[:, kept].sum(axis=1)
                directions[number, group] += units[:, kept].sum(axis=1)
                n_directed[number, group] += (norms[:, kept] > 0).sum(axis=1)
    return [
        [HeadSums(*each) for each in zip(*of_population, strict=True)]
        for of_population in zip(totals, directions, n_directed, strict=True)
    ]
