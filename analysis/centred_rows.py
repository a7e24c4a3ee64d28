"""Rows as the neighbour search multiplies them: distinct, centred, in the range of float32.

The bound. Let x, y be two rows centred by the same vector and rounded to float32, u = 2⁻²⁴ and
s = |x| + |y|. In any order of summation |fl(x·y) - x·y| ≤ γ|x||y| ≤ γs²/4 with γ = Du/(1 - Du)
(Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1); the norms, rounded
from float64, and the three operations on them add at most 6us²; the rounding of the centred
rows moves the distance by us and its square by 3us². Hence |fl(d²) - d²| ≤ (D/2 + 16)us² = cs².
A row y nearer than R has |y| ≤ |x| + R by the triangle inequality, so that s ≤ 2|x| + R: no row
of huge norm far away loosens the bound of the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.errors import NonFiniteRowsError
from analysis.exact_kernels import Reading
from analysis.neighbor_kernels import add_rows, square_norms

Rows = npt.NDArray[np.floating]

_HELD_BYTES: Final = 1 << 25
_SAFE_NORMS: Final = (1e-10, 1e10)

ROUNDING: Final = 2.0**-24
"""Unit roundoff of float32."""

UNDERFLOW: Final = 2.0**-100
"""More than underflow takes from one product of two numbers."""


@dataclass(frozen=True)
class CentredRows:
    """Distinct rows, centred and scaled into the range of float32.

    Attributes:
        rows: Rows as given (row, dim).
        kept: Row number of each distinct row (token).
        centre: Their mean (dim).
        scale: Power of two that the centred rows are multiplied by.
        norms: Squared norms of the centred, scaled rows (token).
        held: The first of these rows (token, dim), as many as memory is set aside for.
    """

    rows: Rows
    kept: npt.NDArray[np.int64]
    centre: npt.NDArray[np.float64]
    scale: float
    norms: npt.NDArray[np.float64]
    held: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.kept)

    @property
    def relative(self) -> float:
        """Error of products in units of the squared sum of two norms."""
        return float(1.01 * (self.rows.shape[1] / 2 + 16) * ROUNDING)

    @property
    def least(self) -> float:
        """Error of products by underflow."""
        return float(self.rows.shape[1] * UNDERFLOW)

    def every(self, stride: int) -> npt.NDArray[np.float32]:
        """Return the centred, scaled rows of every so manieth token (token, dim)."""
        if len(self.held) == len(self):
            return self.held[::stride]
        return self.chosen(self.kept[::stride])

    def let_go(self) -> CentredRows:
        """Return the same with no rows held, unless all are."""
        if len(self.held) == len(self):
            return self
        return replace(self, held=np.empty((0, self.held.shape[1]), np.float32))

    def block(self, tokens: slice | npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Return the centred, scaled rows of some tokens in rising order (token, dim)."""
        if isinstance(tokens, slice) and tokens.stop <= len(self.held):
            return self.held[tokens]
        return self.chosen(self.kept[tokens])

    def chosen(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Return the rows of some rising row numbers, centred and scaled (token, dim)."""
        given = _gather(self.rows, numbers)
        centred = given - self.centre.astype(given.dtype)
        if self.scale != 1.0:
            centred *= centred.dtype.type(self.scale)
        narrow: npt.NDArray[np.float32] = centred.astype(np.float32, copy=False)
        return narrow

    def reading(self, tokens: slice | npt.NDArray[np.int64]) -> Reading:
        """Return how squared distances from some tokens are to be read by kernels."""
        return self.scale, np.sqrt(self.norms[tokens]), self.relative, self.least


def centre_rows(rows: Rows, kept: npt.NDArray[np.int64], block_rows: int) -> CentredRows:
    """Centre the distinct rows by their mean.

    Args:
        rows: Rows (row, dim).
        kept: Row number of each distinct row (token).
        block_rows: Rows handled at a time.

    Raises:
        NonFiniteRowsError: If a value is not finite, or the spread overflows.
    """
    blocks = [kept[start : start + block_rows] for start in range(0, len(kept), block_rows)]
    total = np.zeros(rows.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        for block in blocks:
            add_rows(_gather(rows, block), total)
        centred = _prepare(rows, kept, total / len(kept), 1.0, block_rows)
    norms = centred.norms
    if not np.isfinite(norms).all():
        broken = sum(np.count_nonzero(~np.isfinite(_gather(rows, b)).all(axis=1)) for b in blocks)
        raise NonFiniteRowsError(
            f"neighbours need finite rows that float32 can subtract: {broken} of {len(kept)} "
            "distinct rows hold NaN or infinity; drop or mask them, or scale the rows down"
        )
    largest = float(norms.max())
    if largest == 0.0 or _SAFE_NORMS[0] < largest < _SAFE_NORMS[1]:
        return centred
    # Of rows below the normal range of their dtype, the scale that would do is beyond it.
    most = np.finfo(rows.dtype).maxexp - 2
    scale = 2.0 ** min(-round(math.log2(largest) / 2), most)
    return _prepare(rows, kept, centred.centre, scale, block_rows)


def _prepare(
    rows: Rows,
    kept: npt.NDArray[np.int64],
    centre: npt.NDArray[np.float64],
    scale: float,
    block_rows: int,
) -> CentredRows:
    n, width = len(kept), rows.shape[1]
    norms = np.empty(n)
    held = np.empty((min(n, _HELD_BYTES // (4 * max(width, 1))), width), np.float32)
    centred = CentredRows(rows, kept, centre, scale, norms, held)
    for start in range(0, n, block_rows):
        tokens = slice(start, start + block_rows)
        block = centred.chosen(kept[tokens])
        square_norms(block, norms[tokens])
        held[tokens] = block[: max(0, len(held) - start)]
    return centred


def _gather(rows: Rows, numbers: npt.NDArray[np.int64]) -> Rows:
    if numbers[-1] - numbers[0] == len(numbers) - 1:  # rising, so without a gap
        return rows[numbers[0] : numbers[-1] + 1]
    return rows[numbers]
