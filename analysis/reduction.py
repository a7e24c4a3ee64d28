"""Whether a search for neighbours pays on a few directions first, and on how many.

A part of the rows stands for all: the leading directions of some of them, and, for a few rows of
it, how many others a reduced distance leaves in doubt. The number of operations that this foretells
is compared with that of whole products. Only time depends on the choice, never a result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.centred_rows import CentredRows

Singles = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_PART_BYTES: Final = 1 << 24
_REDUCED_BYTES: Final = 3 << 24
_QUERIES: Final = 48
_LEVELS: Final = ((1 << 33, (16, 32, 64)), (1 << 37, (96, 128, 192, 256)))
"""Numbers of directions to try, and the operations of whole products from which trying is cheap."""

_HOPELESS: Final = 0.75
"""Share of rows in doubt of half the queries at which more directions are not tried."""

_WORTHWHILE: Final = 0.6
"""Share of the operations of whole products below which rows are reduced."""

_EXACT: Final = 18
"""What a number of an exact difference takes, in units of one of a product."""

_OFFER: Final = 4000
"""What entering a candidate among the nearest takes, in the same units."""


@dataclass(frozen=True)
class Reduction:
    """Directions to search on first.

    Attributes:
        directions: Orthonormal directions (dim, direction).
        candidates: Candidates to keep of each row.
        cost: Operations foretold for each row, in units of one of a product.
    """

    directions: Floats
    candidates: int
    cost: float


def choose_reduction(
    centred: CentredRows, groups: Integers, k: int, least: int
) -> Reduction | None:
    """Choose directions for a search, or none where whole products take no longer.

    Args:
        centred: The rows.
        groups: Group of each token, within which no neighbours are sought (token).
        k: Neighbours that are sought.
        least: Candidates to keep of each row at least.
    """
    n, dim = len(centred), centred.rows.shape[1]
    levels = _levels(n, dim)
    if not levels:
        return None
    stride = max(4, -(-4 * dim * n // _PART_BYTES))
    trial = _Trial(
        centred.every(stride), centred.norms[::stride], groups[::stride], n=n, k=k, least=least
    )
    if trial.hopeless(levels[-1][-1]):
        return None
    best: Reduction | None = None
    for widths in levels:
        found, doubtful = trial.reduce(widths)
        if best is None or found.cost < best.cost:
            best = found
        if best.directions.shape[1] < widths[-1] or doubtful > _HOPELESS * n:
            break
    return best if best is not None and best.cost < _WORTHWHILE * trial.whole else None


def _levels(n: int, dim: int) -> list[list[int]]:
    """Return the numbers of directions worth trying for so many rows, a few at a time."""
    widest = min(dim // 2, _REDUCED_BYTES // (4 * n) - 1)
    levels = [
        [width for width in widths if width <= widest]
        for fewest, widths in _LEVELS
        if n**2 * dim // 2 >= fewest
    ]
    return [widths for widths in levels if widths]


class _Trial:
    """A search of a few rows among a part of all."""

    def __init__(
        self, part: Singles, norms: Floats, groups: Integers, *, n: int, k: int, least: int
    ) -> None:
        """Find the neighbours of some rows of the part.

        Args:
            part: Centred rows (token, dim).
            norms: Their squared norms (token).
            groups: Their groups (token).
            n: Number of all rows.
            k: Neighbours sought among all.
            least: Candidates to keep of each row at least.
        """
        self._part, self._norms = part, norms.astype(np.float32)
        self._n, self._k, self._least = n, k, least
        self._share = len(part) / n
        self._queries = slice(0, len(part), -(-len(part) // _QUERIES))
        self._own = groups[self._queries, None] == groups
        self._products = part[self._queries] @ part.T
        squares = self._squares(self._products, self._norms)
        # As many of all rows are as near, on average, as the k nearest.
        self._rank = max(1, round(k * self._share))
        self._limits = np.partition(squares, self._rank - 1, axis=1)[:, self._rank - 1, None]
        dim = part.shape[1]
        self.whole = n * dim / 2 + k * _EXACT * dim + self._offers(least)

    def hopeless(self, width: int) -> bool:
        """Tell whether so many directions leave most rows in doubt, whichever they are.

        Of p, the shares of all directions in the variance, the k largest sum to no more than
        √(kΣp²), and Σp² is the mean square of products of rows over the square of their mean norm.
        """
        squares = np.square(self._products, where=~self._own, out=np.zeros_like(self._products))
        typical = 2 * np.median(self._norms)
        share = np.sqrt(width * squares.mean()) * typical
        return bool(share < np.median(self._limits) * self._norms.mean())

    def reduce(self, widths: Sequence[int]) -> tuple[Reduction, float]:
        """Return the best of some numbers of directions, and the rows in doubt by most of them."""
        directions = leading_directions(self._part, widths[-1])
        along = self._part @ directions
        options = []
        doubtful = 0.0
        for width in widths:
            some = along[:, :width]
            norms = np.einsum("ij,ij->i", some, some)
            rests = np.sqrt(np.maximum(self._norms - norms, 0))
            lower = self._squares(some[self._queries] @ some.T, norms)
            lower += (rests[self._queries, None] - rests) ** 2
            counts = (lower <= 1.001 * self._limits).sum(axis=1) - self._rank
            inside = self._k + np.maximum(counts, 0) / self._share
            doubtful = float(np.median(inside))
            cost, candidates = self._cost(width, inside)
            options.append((cost, width, candidates))
        cost, width, candidates = min(options)
        basis = np.linalg.qr(directions[:, :width].astype(np.float64))[0]
        return Reduction(basis, candidates, cost), doubtful

    def _squares(self, products: Singles, norms: Singles) -> Singles:
        squares: Singles = norms[self._queries, None] + norms - 2 * products
        squares[self._own] = np.inf
        return squares

    def _offers(self, candidates: float) -> float:
        return _OFFER * candidates * math.log(max(math.e, self._n / candidates))

    def _cost(self, width: int, inside: Floats) -> tuple[float, int]:
        """Return the least number of operations for each row, and the candidates that take it."""
        n, dim = self._n, self._part.shape[1]
        products = n * (width + 1) / 2 + 2 * dim * width
        exact = _EXACT * dim
        costs = []
        for candidates in sorted({max(self._least, float(count)) for count in inside}):
            if candidates > self._most():
                break
            beyond = inside[inside > candidates]
            again = n * (width + 1) + np.minimum(exact * beyond, n * dim)
            ranked = exact * np.minimum(inside, candidates).mean()
            repeated = again.sum() / len(inside)
            costs.append((products + ranked + self._offers(candidates) + repeated, candidates))
        cost, candidates = min(costs, default=(np.inf, 0.0))
        return cost, round(candidates)

    def _most(self) -> float:
        """Return how many candidates of each row there is memory for."""
        return max(self._least, _PART_BYTES / (8 * self._n))


def leading_directions(rows: Singles, count: int) -> Singles:
    """Return the leading directions (dim, direction) of centred rows (token, dim), about.

    One step of subspace iteration from random directions (Halko, Martinsson & Tropp, Finding
    structure with randomness, SIAM Review 53 (2011), section 4.5).
    """
    rows = rows[:: max(1, len(rows) // max(512, 4 * count))]
    start = np.random.default_rng(0).standard_normal((rows.shape[1], count), np.float32)
    basis = np.linalg.qr(rows.T @ (rows @ start))[0]
    along = rows @ basis
    directions: Singles = basis @ np.linalg.eigh(along.T @ along)[1][:, ::-1]
    return directions
