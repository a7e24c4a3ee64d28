"""Statistics of whole sequences as paths and as sets of rows, while their rows go by."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.outliers import EXCLUDED, TYPICAL, Parts
from analysis.populations import POPULATIONS, Population
from analysis.rows import Indices, Rows

Floats = npt.NDArray[np.float64]

RENYI_ORDERS: Final = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0)
"""Orders of the entropies of the rows of a sequence; that of order 1 is von Neumann's."""

_ROUNDING: Final = float(np.finfo(np.float32).eps) ** 2


@dataclass
class Shapes:
    """Sums over sequences, each of which counts once.

    Attributes:
        curvature: Σ of the mean angles between successive increments, in radians.
        n_curved: Number of sequences with two successive increments.
        entropies: Σ of the Rényi entropies of the rows (order), in nats.
        n_spread: Number of sequences with a row that is not zero.
    """

    curvature: float = 0.0
    n_curved: int = 0
    entropies: Floats = field(default_factory=lambda: np.zeros(len(RENYI_ORDERS)))
    n_spread: int = 0

    def merge(self, other: Shapes) -> None:
        """Add the sums over other sequences."""
        self.curvature += other.curvature
        self.n_curved += other.n_curved
        self.entropies = self.entropies + other.entropies
        self.n_spread += other.n_spread

    def add(self, gram: Floats, successive: npt.NDArray[np.bool_]) -> None:
        """Add a sequence.

        Args:
            gram: Inner products of its rows (token, token), all below 1.
            successive: Whether each row but the first (token − 1) follows the one before it.
        """
        angles = _angles(gram, successive)
        if len(angles):
            self.curvature += float(angles.mean())
            self.n_curved += 1
        if gram.any():
            values = np.linalg.eigvalsh(gram)
            values = values[values > len(values) * 2.0**-52 * values[-1]]
            self.entropies = self.entropies + renyi_entropies(values / values.sum())
            self.n_spread += 1


class SequenceShapes:
    """Accumulates the shapes of contiguous sequences, one group of them at a time.

    Rows of a sequence are kept until it ends. Typical rows are no path where outliers are missing
    from it; without any, they are ``content``, whose shapes are taken in their place.

    Args:
        sequence: Number of the sequence of each row (token).
        populations: Populations asked for.
    """

    def __init__(self, sequence: Indices, populations: tuple[Population, ...]) -> None:
        self._sequence = sequence
        chosen = (POPULATIONS["content"] if one.typical else one for one in populations)
        self._populations = tuple(dict.fromkeys(chosen))
        self._shapes = self._none()
        self._number = -1
        self._rows: list[Floats] = []
        self._parts: list[Parts] = []

    def add(self, start: int, rows: Rows, parts: Parts) -> None:
        """Add consecutive rows of one group.

        Args:
            start: Number of the first row.
            rows: The rows (token, dim).
            parts: Part of each row (token).
        """
        numbers = self._sequence[start : start + len(rows)]
        cuts = np.flatnonzero(np.diff(numbers)) + 1
        for piece in np.split(np.arange(len(rows)), cuts):
            if numbers[piece[0]] != self._number:
                self._close()
                self._number = int(numbers[piece[0]])
            self._rows.append(rows[piece[0] : piece[-1] + 1].astype(np.float64))
            self._parts.append(parts[piece[0] : piece[-1] + 1])

    def take(self) -> Mapping[str, Shapes]:
        """Return the shapes by population since the last call, and start afresh."""
        self._close()
        self._number = -1
        shapes, self._shapes = self._shapes, self._none()
        return shapes

    def _none(self) -> dict[str, Shapes]:
        return {population.name: Shapes() for population in self._populations}

    def _close(self) -> None:
        if not self._rows:
            return
        rows, parts = np.concatenate(self._rows), np.concatenate(self._parts)
        self._rows, self._parts = [], []
        largest = np.abs(rows[parts >= EXCLUDED]).max(initial=0.0)
        rows /= largest * math.sqrt(rows.shape[1]) or 1.0
        gram = rows @ rows.T
        norms = np.sqrt(gram.diagonal())
        for population in self._populations:
            kept = parts >= (TYPICAL if population.from_content else EXCLUDED)
            if population.unit:
                kept &= norms > 0
            chosen = np.flatnonzero(kept)
            products = gram[np.ix_(chosen, chosen)]
            if population.unit:
                products = products / np.multiply.outer(norms[chosen], norms[chosen])
            self._shapes[population.name].add(products, np.diff(chosen) == 1)


def renyi_entropies(shares: Floats) -> Floats:
    """Return log Σp^α/(1 − α) of shares p (component) above 0, and −Σp log p for α = 1 (order)."""
    logarithms = np.log(shares)
    return np.array(
        [
            -float(shares @ logarithms)
            if order == 1
            else math.log(float(np.exp(order * logarithms).sum())) / (1 - order)
            for order in RENYI_ORDERS
        ]
    )


def _angles(gram: Floats, successive: npt.NDArray[np.bool_]) -> Floats:
    """Return the angles between successive increments of rows that are not zero."""
    squares, beside, apart = (gram.diagonal(offset) for offset in (0, 1, 2))
    lengths = squares[1:] + squares[:-1] - 2 * beside
    # An increment of the size of the rounding of the rows has no direction.
    used = successive & (lengths > _ROUNDING * np.maximum(squares[1:], squares[:-1]))
    both = used[1:] & used[:-1]
    products = beside[1:] - squares[1:-1] - apart + beside[:-1]
    cosines = products[both] / np.sqrt(lengths[1:][both] * lengths[:-1][both])
    angles: Floats = np.arccos(np.clip(cosines, -1, 1))
    return angles
