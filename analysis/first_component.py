"""The first component alone, of rows that are in memory: no product between all dimensions.

Where λ₁ and the variance are all that is asked of a spectrum, a few directions are multiplied with
the rows and back until λ₁ is certain to ``TOLERANCE`` of itself; see ``krylov``. How far the rows
lie along the direction that was found is then summed in float64, as is the variance, so that no
single row, nor many that are the same, leave the rounding of float32 in the share of the two. Few
rows are multiplied in float64. Where the bound takes long, as with a flat spectrum, the product is
computed after all, as with rows that are mostly the same or near each other.

How far the rows lie along all directions is kept, so that leaving out a group of sequences changes
a small matrix: λ₁ without the group is taken within their span.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.krylov import BLOCK, leading_directions, new_directions, ritz
from analysis.moments import CentralMoments
from analysis.neighbors import distinct_rows
from analysis.population_rows import PopulationRows
from analysis.rows import Indices, Rows

Floats = npt.NDArray[np.float64]

TOLERANCE: Final = 1e-8
"""Relative error bound of λ₁ at which no further pass is made."""

LEAST_PASSES: Final = 5
"""Passes there may be at least; more where the rows are few beside their dimensions."""

MOST_PASSES: Final = 24
FLAT: Final = 1.3
"""Ratio of the largest to the eighth eigenvalue of a sample below which passes gain too little."""

FEW: Final = 4096
"""Rows below which the rounding of single rows is felt, and float64 costs next to nothing."""

LEAST_SPREAD: Final = 1e-4
"""Spread relative to the mean row below which rounding of the mean is felt."""

_ROWS_SUMMED: Final = 8192

SAFE: Final = (2.0**-40, 2.0**40)
"""Mean squared distances from the mean row whose squares float32 can sum."""


@dataclass(frozen=True)
class FirstComponent:
    """The largest eigenvalue of a scatter.

    Attributes:
        share: The eigenvalue relative to the trace.
        left: The eigenvalue without each group of rows in turn (group), NaN where one row is left.
        others: Squared distances of these rows from the mean of all (group).
        passes: How often the rows were read for it.
    """

    share: float
    left: Floats
    others: Floats
    passes: int

    def share_without(self, group: int, shift: Floats, rest: int) -> float:
        """Return the share without a group of rows.

        Args:
            group: Number of the group.
            shift: From the mean of all rows to that of the others (dim).
            rest: Number of the others.
        """
        trace = self.others[group] - rest * float(shift @ shift)
        return float(min(self.left[group] / trace, 1.0)) if trace > 0 else np.nan


def find_first(rows: PopulationRows, total: CentralMoments) -> FirstComponent | None:
    """Return the largest eigenvalue of the scatter of some rows, None where a product is needed.

    Args:
        rows: The rows, finite.
        total: Their number, mean and squares.
    """
    if total.n < 2 or rounds(rows, total):
        return None
    trace = float(total.squares.sum())
    known = _KnownRows(rows, total)
    pilot = (rows.pilot() - total.mean).astype(np.float32)
    block = leading_directions(pilot)
    sizes = np.linalg.svd(pilot @ block.astype(np.float32), compute_uv=False)
    if len(sizes) == BLOCK and sizes[0] ** 2 < FLAT * sizes[-1] ** 2:
        return None
    most, before = _most_passes(total), np.nan
    for passes in range(1, most + 1):
        product = known.times(block)
        basis, images = known.orthonormal()
        _, bound = ritz(basis, images, trace)
        block = new_directions(basis, product)
        if bound <= TOLERANCE or block.shape[1] == 0:
            return known.finish(rows.sizes, passes)
        if passes > 1 and not _within(bound, before, most - passes):
            return None
        before = bound
    return None


def _within(bound: float, before: float, passes: int) -> bool:
    """Return whether a bound that goes on to fall as it did is small enough after some passes."""
    return 0 < bound < before and bound * (bound / before) ** passes <= TOLERANCE


def rounds(rows: PopulationRows, total: CentralMoments) -> bool:
    """Return whether products of rows in float32 are too coarse for their first component.

    Args:
        rows: The rows, finite.
        total: Their number, mean and squares.
    """
    spread, offset = float(total.squares.sum()) / total.n, float(total.mean @ total.mean)
    if not (SAFE[0] < spread < SAFE[1] and rows.narrow):
        return True
    if total.n < FEW:
        return False
    pilot = rows.pilot()
    return spread < LEAST_SPREAD**2 * offset or 2 * len(distinct_rows(pilot)) < len(pilot)


def _most_passes(total: CentralMoments) -> int:
    """Return how many passes take less than half of what a product and its spectrum do."""
    width = len(total.mean)
    return int(np.clip(width * (1 + 2 * width / total.n) / 64, LEAST_PASSES, MOST_PASSES))


class _KnownRows:
    """Rows about their mean, and how far they lie along the directions asked for so far."""

    def __init__(self, rows: PopulationRows, total: CentralMoments) -> None:
        self._rows = rows
        self._total = total
        self._precision = np.float64 if total.n < FEW else rows.precision
        # What rounding leaves of the mean is taken out of the sums.
        self._shift = total.mean.astype(self._precision)
        self._rest = total.mean - self._shift
        self._directions = self._images = np.empty((len(total.mean), 0))
        self._along: list[Rows] = []

    def times(self, directions: Floats) -> Floats:
        """Return the scatter times some directions (dim, component), in one pass."""
        count = directions.shape[1]
        narrow = np.zeros((count + count % 2, len(directions)), self._precision)
        narrow[:count] = directions.T
        along, sums = self._rows.times(narrow, self._shift)
        exact = narrow[:count].T.astype(np.float64)
        aside = self._rest @ exact
        self._along.append(along[:, :count] - aside.astype(self._precision))
        product: Floats = sums[:count].T - self._total.n * np.multiply.outer(self._rest, aside)
        self._directions = np.hstack([self._directions, exact])
        self._images = np.hstack([self._images, product])
        return product

    def orthonormal(self) -> tuple[Floats, Floats]:
        """Return a basis of all directions so far, and the scatter times it (dim, component).

        Rounding to float32 leaves directions that are orthonormal to 1e-7 alone.
        """
        basis, turn = np.linalg.qr(self._directions)
        images: Floats = np.linalg.solve(turn.T, self._images.T).T
        return basis.astype(np.float64, copy=False), images

    def finish(self, sizes: Indices, passes: int) -> FirstComponent:
        """Return the first component: the best direction in the span of all so far.

        Its own error is of second order in that of the direction, so that sums of squares in
        float64 make it exact. Without a group, what the direction gains by turning is added.

        Args:
            sizes: Number of rows of each group, in the order of the rows (group).
            passes: How often the rows were read so far.
        """
        basis, turn = np.linalg.qr(self._directions)
        back = np.linalg.inv(turn)
        parts = np.split(np.hstack(self._along), np.cumsum(sizes)[:-1])
        grams = [_gram(part) for part in parts]
        sums = [part.sum(axis=0, dtype=np.float64) for part in parts]
        gram, total = np.sum(grams, axis=0), np.sum(sums, axis=0)
        n = self._total.n
        top = np.linalg.eigh(_turned(_about(gram, total, n), back))[1][:, -1]
        lengths, squares = self._rows.along(basis @ top, self._total.mean)
        value = lengths @ lengths - lengths.sum() ** 2 / n
        left, others = np.full((2, len(sizes)), np.nan)
        stops = np.cumsum(sizes)
        for group, stop in enumerate(stops):
            rest, own = n - sizes[group], slice(stop - sizes[group], stop)
            if rest > 1:
                without = _turned(_about(gram - grams[group], total - sums[group], rest), back)
                gained = np.linalg.eigvalsh(without)[-1] - top @ without @ top
                kept = lengths @ lengths - lengths[own] @ lengths[own]
                kept -= (lengths.sum() - lengths[own].sum()) ** 2 / rest
                left[group], others[group] = kept + gained, squares.sum() - squares[own].sum()
        return FirstComponent(min(value / squares.sum(), 1.0), left, others, passes + 1)


def _gram(rows: Rows) -> Floats:
    """Return XᵀX (component, component) of rows X (token, component), in float64."""
    gram = np.zeros((rows.shape[1], rows.shape[1]))
    for start in range(0, len(rows), _ROWS_SUMMED):
        part = rows[start : start + _ROWS_SUMMED].astype(np.float64)
        gram += part.T @ part
    return gram


def _about(gram: Floats, total: Floats, n: int) -> Floats:
    """Return XᵀX (component, component) of n rows about their mean, given their sum (component)."""
    return gram - np.multiply.outer(total, total) / n


def _turned(gram: Floats, back: Floats) -> Floats:
    """Return a symmetric matrix in the basis that ``back`` takes directions to."""
    turned: Floats = back.T @ gram @ back
    return (turned + turned.T) / 2
