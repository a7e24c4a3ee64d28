"""How the eigenvalues of a matrix change when a part of it is taken away, without decomposing it.

Leaving out a group of rows changes the matrix M to M − R. Within a subspace of the leading
components, with the basis Q, the eigenvalues of Qᵀ(M − R)Q are computed exactly. Those outside
change as δλ = λ(a + bλ), with a and b such that the trace and the Frobenius norm of the rest,
that is, their Σλ and Σλ², come out right. Up to 128 dimensions the subspace is everything and
nothing is approximate; beyond, ten groups cost about as much as two decompositions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.moment_kernels import add_outer

Floats = npt.NDArray[np.float64]

COMPONENTS: Final = 128
"""Leading components that are followed one by one."""

_ITERATIONS: Final = 4
_DISTINCT: Final = 1e-6


@dataclass
class Split:
    """A symmetric matrix M, in units of its subspace, seen from the basis Q of that.

    Attributes:
        inside: QᵀMQ (component, component).
        outside: (1 − QQᵀ)M(1 − QQᵀ) (dim, dim), None where the subspace is everything.
    """

    inside: Floats
    outside: npt.NDArray[np.float32] | None


class Subspace:
    """The leading components of a matrix, and a direction.

    Components so near in size that a few iterations cannot tell them apart are mixed, which does
    not matter for functions of all eigenvalues.

    Args:
        matrix: Positive semi-definite (dim, dim).
        direction: A vector (dim), such as the mean row.

    Attributes:
        unit: Its mean eigenvalue, the unit of what is split, for float32 to hold it.
    """

    def __init__(self, matrix: Floats, direction: Floats) -> None:
        self._basis: npt.NDArray[np.float32] | None = None
        dim = len(matrix)
        self.unit = float(np.trace(matrix)) / dim or 1.0
        if dim > COMPONENTS:
            basis = np.random.default_rng(0).standard_normal((dim, COMPONENTS)).astype(np.float32)
            rounded = (matrix / self.unit).astype(np.float32)
            for _ in range(_ITERATIONS):
                basis = np.linalg.qr(rounded @ basis)[0]
            both = np.column_stack([basis, direction / (np.abs(direction).max() or 1.0)])
            self._basis = np.linalg.qr(both)[0].astype(np.float32)

    def split(self, matrix: Floats) -> Split:
        """Split a symmetric matrix (dim, dim)."""
        basis = self._basis
        if basis is None:
            return Split(matrix / self.unit, None)
        rounded = (matrix / self.unit).astype(np.float32)
        across = basis.T @ rounded
        inside = across @ basis
        half = basis @ (across - inside / 2 @ basis.T)
        rounded -= half
        rounded -= half.T
        return Split(inside.astype(np.float64), rounded)

    def add_outer(self, split: Split, vector: Floats, weight: float) -> Split:
        """Return the split matrix with weight · vector vectorᵀ added, leaving it unchanged."""
        inside, vector = split.inside.copy(), vector / math.sqrt(self.unit)
        if self._basis is None or split.outside is None:
            add_outer(inside, vector, weight)
            return Split(inside, None)
        within = (self._basis.T @ vector).astype(np.float64)
        add_outer(inside, within, weight)
        outside = split.outside.copy()
        add_outer(outside, vector - self._basis @ within, weight)
        return Split(inside, outside)


class CompressedSpectrum:
    """The eigenvalues of a matrix, ready for parts of it to be taken away.

    Args:
        values: Its eigenvalues (component) in falling order.
        split: The matrix, seen from the subspace of its leading components.
        unit: Unit of the split matrix.
    """

    def __init__(self, values: Floats, split: Split, unit: float) -> None:
        self._unit = unit
        self._values = values / unit
        self._split = split
        self._leading = _falling(split.inside)

    def without(self, removed: Split) -> Floats:
        """Return the eigenvalues (component) of what is left, in falling order.

        Args:
            removed: What is taken away, positive semi-definite as what is left of it.
        """
        values = self._values.copy()
        k = len(self._leading)
        values[:k] += _falling(self._split.inside - removed.inside) - self._leading
        if self._split.outside is not None and removed.outside is not None:
            whole, left = self._split.outside, self._split.outside - removed.outside
            square = float(np.vdot(left, left) - np.vdot(whole, whole))
            values[k:] += _spread(values[k:], -float(np.trace(removed.outside)), square)
        kept = np.where(self._values > 0, np.maximum(values, 0), 0)
        return np.sort(kept)[::-1] * self._unit


def _spread(values: Floats, trace: float, square: float) -> Floats:
    """Return changes λ(a + bλ) that change Σλ, and Σλ² to first order, by given amounts."""
    first, second, third = (float((values**power).sum()) for power in (1, 2, 3))
    if first <= 0:
        return np.zeros_like(values)
    distinct = first * third - second**2
    if distinct <= _DISTINCT * second**2:
        return values * (trace / first)
    # a Σλ + b Σλ² = δΣλ, and a Σλ² + b Σλ³ = δΣλ²/2.
    a = (trace * third - square / 2 * second) / distinct
    b = (square / 2 * first - trace * second) / distinct
    return values * (a + b * values)


def _falling(matrix: Floats) -> Floats:
    values: Floats = np.linalg.eigvalsh(matrix)[::-1].astype(np.float64)
    return values
