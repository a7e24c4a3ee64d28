"""The largest eigenvalue of a covariance without the covariance: block Krylov from a pilot sample.

A pass multiplies the rows by a few directions and back, n·d·b operations twice where a covariance
takes n·d². The directions start as the leading ones of a sample, and each pass adds those that the
covariance turns them into; the largest Ritz value θ in their span bounds λ₁ from below. With the
residual r = ‖Cq − θq‖ of its vector, and λ₂ below θ₂ + r₂, the Kato–Temple inequality bounds it
from above: λ₁ ≤ θ + r²/(θ − θ₂ − r₂). Both hold if the start was not orthogonal to the leading
component, which a sample of rows all but excludes.

Sources: Musco & Musco 2015, Randomized block Krylov methods, NIPS; Parlett 1998, The symmetric
eigenvalue problem, section 10.5 to 11.7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.rows import Rows

Floats = npt.NDArray[np.float64]

TOLERANCE: Final = 1e-4
"""Relative error bound at which no further pass is made."""

MOST_PASSES: Final = 8
BLOCK: Final = 8
PILOT_ROWS: Final = 1024

_PILOT_ITERATIONS: Final = 6
_TILE_BYTES: Final = 400_000
"""Rows multiplied by directions and back at a time: what stays in a core's own cache meanwhile."""

Blocks = Callable[[], Iterator[Rows]]


@dataclass(frozen=True)
class LeadingShare:
    """The share of the largest eigenvalue in the trace of a covariance.

    Attributes:
        share: λ₁/Σλ from below; NaN for fewer than two rows, or rows that do not vary.
        bound: How much larger it can be, relative to itself.
        passes: How often the rows were read, the pilot sample not counted.
    """

    share: float
    bound: float
    passes: int


def leading_share(blocks: Blocks, pilot: Rows, *, tolerance: float = TOLERANCE) -> LeadingShare:
    """Return the share of the first component in the variance, with a bound on its error.

    Args:
        blocks: Yields the finite rows (token, dim), some at a time; called once for each pass.
        pilot: Some of the rows (token, dim), spread over all of them.
        tolerance: Relative error bound at which to stop.
    """
    if len(pilot) < 2:
        return LeadingShare(np.nan, np.nan, 0)
    shift = pilot.mean(axis=0, dtype=np.float64)
    scatter = _Scatter(blocks, shift)
    block = leading_directions((pilot - shift).astype(np.float32))
    basis = images = np.empty((len(shift), 0))
    passes, share, bound = 0, np.nan, np.nan
    while passes < MOST_PASSES:
        passes += 1
        product = scatter.times(block)
        basis, images = np.hstack([basis, block]), np.hstack([images, product])
        share, bound = ritz(basis, images, scatter.trace)
        if not bound > tolerance or basis.shape[1] >= len(shift):
            break
        block = new_directions(basis, product)
        if block.shape[1] == 0:
            bound = 0.0
            break
    return LeadingShare(share, bound, passes)


def leading_directions(centred: Rows) -> Floats:
    """Return about the leading directions (dim, component) of a few rows."""
    count = min(BLOCK, *centred.shape)
    start = np.random.default_rng(0).standard_normal((centred.shape[1], count))
    directions = np.linalg.qr(start)[0].astype(np.float32)
    for _ in range(_PILOT_ITERATIONS):
        directions = np.linalg.qr(centred.T @ (centred @ directions))[0]
    exact: Floats = np.linalg.qr(directions.astype(np.float64))[0]
    return exact


class _Scatter:
    """A scatter known by what it does to directions.

    Args:
        blocks: Yields the rows (token, dim), once for each pass.
        shift: A point near their mean (dim).

    Attributes:
        trace: Its trace, known after the first pass.
    """

    def __init__(self, blocks: Blocks, shift: Floats) -> None:
        self._blocks = blocks
        self._shift = shift
        self._total: Floats | None = None
        self._n = 0
        self.trace = 0.0

    def times(self, directions: Floats) -> Floats:
        """Return the scatter times some directions (dim, component), in one pass."""
        product = np.zeros(directions.shape)
        first = self._total is None
        total = np.zeros(len(self._shift)) if self._total is None else self._total
        for rows in self._blocks():
            narrow, shift = directions.astype(rows.dtype), self._shift.astype(rows.dtype)
            size = tile_rows(rows[:1].nbytes)
            for start in range(0, len(rows), size):
                centred = rows[start : start + size] - shift
                product += centred.T @ (centred @ narrow)
                if first:
                    self._n += len(centred)
                    total += centred.sum(axis=0, dtype=np.float64)
                    squares = np.einsum("ij,ij->i", centred, centred)
                    self.trace += float(squares.sum(dtype=np.float64))
        if first and self._n:
            self.trace -= float(total @ total) / self._n
        self._total = total
        return product - np.multiply.outer(total, total @ directions) / max(self._n, 1)


def tile_rows(row_bytes: int) -> int:
    """Return how many rows of so many bytes are read twice at the cost of once."""
    return max(32, _TILE_BYTES // max(row_bytes, 1))


def ritz(basis: Floats, images: Floats, trace: float) -> tuple[float, float]:
    """Return θ/Σλ of the largest Ritz value, and how much larger λ₁ can be relative to it."""
    projected = basis.T @ images
    values, vectors = np.linalg.eigh((projected + projected.T) / 2)
    top = vectors[:, ::-1][:, :2]
    theta = values[::-1][:2]
    if not trace > 0 or not theta[0] > 0:
        return np.nan, np.nan
    residuals = np.linalg.norm(images @ top - basis @ top * theta, axis=0)
    bound = float(residuals[0])
    if len(theta) > 1:
        gap = theta[0] - theta[1] - residuals[1]
        if gap > residuals[0]:
            bound = float(residuals[0] ** 2 / gap)
    return float(theta[0] / trace), bound / float(theta[0])


def new_directions(basis: Floats, product: Floats) -> Floats:
    """Return orthonormal directions (dim, component) of a product that a basis does not have."""
    room = len(basis) - basis.shape[1]
    scale = np.linalg.norm(product, axis=0)
    rest = product / np.where(scale > 0, scale, 1)
    for _ in range(2):
        rest = rest - basis @ (basis.T @ rest)
    axes, sizes, _ = np.linalg.svd(rest, full_matrices=False)
    directions: Floats = axes[:, :room][:, sizes[:room] > 1e-7]
    return directions
