"""The first component alone, of rows that are in memory: no product between all dimensions.

Where λ₁ and the variance are all that is asked of a spectrum, a few directions are multiplied with
the rows and back until λ₁ is certain to ``TOLERANCE`` of itself, which is less than the rounding of
float32 products leaves of it; see ``krylov``. Where that takes long, as with a flat spectrum, the
product is computed after all, as with few rows, rows that are mostly the same, and nearly all
variance along one direction, where rounding does not average out. How far the rows lie along the
directions is kept, so that leaving out a group of sequences changes a small matrix: λ₁ without the
group is taken within their span.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.krylov import leading_directions, new_directions, ritz
from analysis.moments import CentralMoments
from analysis.rows import Indices, Rows

Floats = npt.NDArray[np.float64]
Centred = Callable[[Rows], Iterator[Rows]]
"""Yields rows (token, dim) less a shift (dim), so few at a time that they stay in a core's cache;
each piece is valid until the next."""

TOLERANCE: Final = 1e-8
"""Relative error bound of λ₁ at which no further pass is made.

Rounding comes on top: some 1e-7 where one row, or rows that are the same, make up much of λ₁.
"""

MOST_PASSES: Final = 5
HOPEFUL: Final = 1e-2
"""Relative error bound after two passes beyond which more would not do."""

FEW: Final = 4096
"""Rows below which a product costs next to nothing and the rounding of single rows is felt."""

MOST_SHARE: Final = 0.99
"""Share of the variance above which the rounding of float32 could take λ₁ beyond all of it."""

LEAST_SPREAD: Final = 1e-4
"""Spread relative to the mean row below which rounding of the mean is felt."""

_ROWS_SUMMED: Final = 8192

SAFE: Final = (2.0**-40, 2.0**40)
"""Mean squared distances from the mean row whose squares float32 can sum."""


@dataclass(frozen=True)
class FirstComponent:
    """The largest eigenvalue of a scatter.

    Attributes:
        value: The eigenvalue.
        left: The same without each group of rows in turn (group).
        passes: How often the rows were read for it.
    """

    value: float
    left: Floats
    passes: int


def find_first(
    centred: Centred, pilot: Rows, total: CentralMoments, sizes: Indices
) -> FirstComponent | None:
    """Return the largest eigenvalue of the scatter of some rows, None where a product is needed.

    Args:
        centred: Yields the finite rows about a shift; called once for each pass.
        pilot: Some of the rows (token, dim), spread over all of them.
        total: Number, mean and squares of the rows.
        sizes: Number of rows of each group, in the order of the rows (group).
    """
    trace = float(total.squares.sum())
    if total.n < max(2, FEW) or not SAFE[0] < trace / total.n < SAFE[1] or _rounds(pilot, total):
        return None
    rows = _KnownRows(centred, total)
    block = leading_directions((pilot - total.mean).astype(np.float32))
    for passes in range(1, MOST_PASSES + 1):
        product = rows.times(block)
        basis, images = rows.orthonormal()
        _, bound = ritz(basis, images, trace)
        block = new_directions(basis, product)
        if bound <= TOLERANCE or block.shape[1] == 0:
            found = FirstComponent(*rows.finish(sizes), passes)
            return found if found.value <= MOST_SHARE * trace else None
        if passes > 1 and not bound < HOPEFUL:
            return None
    return None


def _rounds(pilot: Rows, total: CentralMoments) -> bool:
    """Return whether rounding adds up: rows are near each other, or mostly the same few."""
    spread, offset = float(total.squares.sum()) / total.n, float(total.mean @ total.mean)
    return spread < LEAST_SPREAD**2 * offset or 2 * len(np.unique(pilot, axis=0)) < len(pilot)


class _KnownRows:
    """Rows about their mean, and how far they lie along the directions asked for so far."""

    def __init__(self, centred: Centred, total: CentralMoments) -> None:
        self._centred = centred
        # What rounding leaves of the mean is taken out of the sums.
        self._shift = total.mean.astype(np.float32)
        self._rest = total.mean - self._shift
        self._n = total.n
        self._directions = self._images = np.empty((len(total.mean), 0))
        self._along: list[Rows] = []

    def times(self, directions: Floats) -> Floats:
        """Return the scatter times some directions (dim, component), in one pass."""
        narrow = directions.astype(np.float32)
        product = np.zeros(directions.shape)
        along: list[Rows] = []
        for rows in self._centred(self._shift):
            along.append(rows @ narrow.astype(rows.dtype))
            product += rows.T @ along[-1]
        exact = narrow.astype(np.float64)
        aside = self._rest @ exact
        self._along.append(np.concatenate(along) - aside.astype(along[0].dtype))
        product -= self._n * np.multiply.outer(self._rest, aside)
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

    def finish(self, sizes: Indices) -> tuple[float, Floats]:
        """Return the largest eigenvalue in the span of all directions, and those without a group.

        Sums of squares of how far rows lie along them, in float64, are more exact than products
        summed in float32.

        Args:
            sizes: Number of rows of each group, in the order of the rows (group).

        Returns:
            The eigenvalue of all rows, and without each group (group), NaN where one row is left.
        """
        turn = np.linalg.qr(self._directions)[1]
        along = np.hstack(self._along)
        parts = np.split(along, np.cumsum(sizes)[:-1])
        grams = [_gram(part) for part in parts]
        totals = [part.sum(axis=0, dtype=np.float64) for part in parts]
        inside, whole = np.sum(grams, axis=0), np.sum(totals, axis=0)
        values = np.full(len(sizes), np.nan)
        for group, (gram, total) in enumerate(zip(grams, totals, strict=True)):
            rest = self._n - len(parts[group])
            if rest > 1:
                left, sums = inside - gram, whole - total
                values[group] = _largest(left - np.multiply.outer(sums, sums) / rest, turn)
        return _largest(inside - np.multiply.outer(whole, whole) / self._n, turn), values


def _gram(rows: Rows) -> Floats:
    """Return XᵀX (component, component) of rows X (token, component), in float64."""
    gram = np.zeros((rows.shape[1], rows.shape[1]))
    for start in range(0, len(rows), _ROWS_SUMMED):
        part = rows[start : start + _ROWS_SUMMED].astype(np.float64)
        gram += part.T @ part
    return gram


def _largest(gram: Floats, turn: Floats) -> float:
    """Return the largest eigenvalue of a matrix in a basis that ``turn`` makes orthonormal."""
    turned = np.linalg.solve(turn.T, np.linalg.solve(turn.T, gram).T)
    return float(np.linalg.eigvalsh((turned + turned.T) / 2)[-1])
