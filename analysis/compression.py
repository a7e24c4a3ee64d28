"""How the eigenvalues of a matrix change when a part of it is taken away, without decomposing it.

Leaving out a group of rows changes the matrix M to M − R. Within a subspace of the leading
components, with the basis Q, the eigenvalues of Qᵀ(M − R)Q are computed exactly. Those outside
change as δλ = λ(a + bλ), with a and b such that the trace and the Frobenius norm of the rest,
that is, their Σλ and Σλ², come out right. Up to 128 dimensions the subspace is everything and
nothing is approximate; beyond, ten groups cost about as much as one decomposition.

With P = 1 − QQᵀ, what is needed of PRP follows from R and RQ, and it is never formed:
tr PRP = tr R − tr QᵀRQ, ⟨PMP, PRP⟩ = ⟨PMP, R⟩ and ‖PRP‖² = ‖R‖² − 2‖RQ‖² + ‖QᵀRQ‖².
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Outer = tuple[Floats, float]
"""A vector v (dim) and a weight w, for the matrix w · vvᵀ."""

COMPONENTS: Final = 128
"""Leading components that are followed one by one."""

_ITERATIONS: Final = 4
_DISTINCT: Final = 1e-6


@dataclass(frozen=True)
class Removed:
    """A symmetric matrix R to be taken away from M, both in units of the subspace of M.

    Attributes:
        inside: QᵀRQ (component, component).
        trace: The trace of PRP; 0 where the subspace is everything.
        overlap: ⟨PMP, PRP⟩.
        square: ‖PRP‖².
    """

    inside: Floats
    trace: float = 0.0
    overlap: float = 0.0
    square: float = 0.0


class Subspace:
    """The leading components of a matrix M, and a direction.

    Components so near in size that a few iterations cannot tell them apart are mixed, which does
    not matter for functions of all eigenvalues.

    Args:
        matrix: M (dim, dim), positive semi-definite.
        direction: A vector (dim), such as the mean row.

    Attributes:
        unit: Its mean eigenvalue, the unit of what is seen from here.
        inside: QᵀMQ (component, component).
    """

    def __init__(self, matrix: Floats, direction: Floats) -> None:
        self.unit = float(np.trace(matrix)) / len(matrix) or 1.0
        whole = matrix / self.unit
        self._basis = _leading_basis(whole, direction) if len(whole) > COMPONENTS else None
        if self._basis is None:
            self.inside = whole
            return
        across = self._basis.T @ whole
        self.inside = across @ self._basis
        half = self._basis @ (across - self.inside / 2 @ self._basis.T)
        whole -= half
        whole -= half.T
        self._outside = whole

    def add_outer(self, inside: Floats, outer: Outer) -> Floats:
        """Return the inside (component, component) of a matrix with w · vvᵀ added to it."""
        vector, weight = outer
        seen = vector if self._basis is None else self._basis.T @ vector
        return inside + weight / self.unit * np.multiply.outer(seen, seen)

    def remove(self, matrix: Floats, outers: Sequence[Outer]) -> list[Removed]:
        """Prepare a matrix to be taken away together with each of some outer products.

        Args:
            matrix: A symmetric matrix (dim, dim); used up.
            outers: What is added to it in turn.
        """
        matrix /= self.unit
        if self._basis is None:
            return [Removed(self.add_outer(matrix, outer)) for outer in outers]
        images = matrix @ self._basis
        inside = self._basis.T @ images
        trace = float(np.trace(matrix) - np.trace(inside))
        overlap = float(np.vdot(self._outside, matrix))
        square = float(np.vdot(matrix, matrix) + np.vdot(inside, inside))
        square -= 2 * float(np.vdot(images, images))
        found = []
        for vector, weight in outers:
            rest = vector - self._basis @ (self._basis.T @ vector)
            factor = weight / self.unit
            length = factor * float(rest @ rest)
            found.append(
                Removed(
                    self.add_outer(inside, (vector, weight)),
                    trace + length,
                    overlap + factor * float(rest @ self._outside @ rest),
                    square + 2 * factor * float(rest @ matrix @ rest) + length**2,
                )
            )
        return found


class CompressedSpectrum:
    """The eigenvalues of a matrix, ready for parts of it to be taken away.

    Args:
        values: Its eigenvalues (component) in falling order.
        inside: The matrix (component, component), seen from the subspace.
        unit: Unit of the subspace.
    """

    def __init__(self, values: Floats, inside: Floats, unit: float) -> None:
        self._unit = unit
        self._values = values / unit
        self._inside = inside
        self._leading = _falling(inside)

    def without(self, removed: Removed) -> Floats:
        """Return the eigenvalues (component) of what is left, in falling order.

        Args:
            removed: What is taken away, positive semi-definite as what is left of it.
        """
        values = self._values.copy()
        k = len(self._leading)
        values[:k] += _falling(self._inside - removed.inside) - self._leading
        if k < len(values):
            square = removed.square - 2 * removed.overlap
            values[k:] += _spread(values[k:], -removed.trace, square)
        kept = np.where(self._values > 0, np.maximum(values, 0), 0)
        return np.sort(kept)[::-1] * self._unit


def _leading_basis(matrix: Floats, direction: Floats) -> Floats:
    """Return an orthonormal basis (dim, component) of the leading components and a direction."""
    rounded = matrix.astype(np.float32)
    start = np.random.default_rng(0).standard_normal((len(matrix), COMPONENTS))
    basis: npt.NDArray[np.float32] = start.astype(np.float32)
    for _ in range(_ITERATIONS):
        basis = np.linalg.qr(rounded @ basis)[0].astype(np.float32, copy=False)
    both = np.column_stack([basis, direction / (np.abs(direction).max() or 1.0)])
    exact: Floats = np.linalg.qr(both.astype(np.float64))[0]
    return exact


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
    values: Floats = np.linalg.eigvalsh(matrix)[::-1].astype(np.float64, copy=False)
    return values
