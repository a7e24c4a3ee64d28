"""Rows of one kind, gathered into blocks that go through one matrix product each.

Products run in float32 on rows from which a pilot mean was subtracted, and are summed in
float64. Without the shift, a mean of a thousand spreads costs all digits of the spectrum; with
it, the relative error stays near 1e-7 at half the cost of float64 products. What it cannot do is
tell an eigenvalue of 1e-8 of the trace from none at all. The few rows far from all others that make
up most of the trace of many a layer are therefore multiplied in float64; ``noise`` says how small
an eigenvalue the rest can tell, and a pass in float64 follows where it matters.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.gram import gram, on_cpu
from analysis.groups import PackedRows
from analysis.matrix_kernels import add_triangle, finish_scatter
from analysis.moments import CentralMoments
from analysis.row_kernels import stage_rows
from analysis.rows import BLOCK_ROWS, Indices, Rows

Floats = npt.NDArray[np.float64]

PILOT_ROWS: Final = 1024
"""Rows whose mean becomes the shift; any point within a few spreads of the mean would do."""

FAR: Final = 9.0
"""Multiple of the median squared distance from the shift beyond which rows are multiplied apart."""

_FLOAT32_ROUNDING: Final = 2.0**-24
_FLOAT32_SCALES: Final = (2.0**-100, 2.0**100)


class Stage:
    """Accumulates central moments of the rows given to it, one group of sequences at a time.

    Args:
        dim: Width of the rows.
        scatter: Whether products between dimensions are needed.
        precise: Whether products run in float64.
        capacity: Rows of one matrix product.
    """

    def __init__(
        self, dim: int, *, scatter: bool, precise: bool = False, capacity: int = BLOCK_ROWS
    ) -> None:
        self._dim = dim
        self._capacity = capacity
        self._shift: Floats | None = None
        self._scale = 1.0
        self._staged: Rows | None = None
        self._squares: Rows | None = None
        self._precision: type[np.floating] = np.float64 if precise else np.float32
        self._held = 0
        self._n = 0
        self._powers = np.zeros((4, dim))
        self._scatter = scatter
        self._product: Floats | None = None
        self._rounded = 0.0

    def add(self, rows: Rows, selected: Indices, factors: Floats | None = None) -> None:
        """Add the selected rows.

        Args:
            rows: Rows (token, dim).
            selected: Numbers of the rows to add.
            factors: What each row (token) is multiplied by, None for nothing.
        """
        if len(selected) == 0:
            return
        if self._shift is None:
            self._settle(rows, selected[:PILOT_ROWS], factors)
        if self._staged is None:
            self._staged = np.empty((self._capacity, self._dim), self._precision)
            self._squares = np.empty(self._capacity, self._precision)
        assert self._shift is not None
        assert self._squares is not None
        scales = np.full(len(rows), self._scale) if factors is None else factors * self._scale
        precision = self._arithmetic(rows, scales[selected])
        scales, shift = scales.astype(precision), self._shift.astype(precision)
        while len(selected):
            taken = selected[: self._capacity - self._held]
            place = slice(self._held, self._held + len(taken))
            room, squares = self._staged[place], self._squares[place]
            stage_rows(rows, taken, scales, shift, room, squares, self._powers)
            self._held += len(taken)
            selected = selected[len(taken) :]
            if self._held == self._capacity:
                self._multiply()

    def few_rows(self) -> Floats | None:
        """Return the rows of the present group (token, dim), None unless they are few."""
        if self._n or self._staged is None or not PackedRows.suits(self._held, self._dim):
            return None
        assert self._shift is not None
        return (self._staged[: self._held] + self._shift) / self._scale

    def take(self) -> CentralMoments:
        """Return the moments of the rows added since the last call, and start afresh."""
        self._multiply()
        n, scale = self._n, self._scale
        if n == 0 or self._shift is None:
            return CentralMoments.zero(self._dim, scatter=self._scatter)
        first, second, third, fourth = self._powers
        offset = first / n
        squares = np.maximum(second - n * offset**2, 0)
        cubes = third - 3 * offset * second + 2 * n * offset**3
        quartics = fourth - 4 * offset * third + 6 * offset**2 * second - 3 * n * offset**4
        moments = CentralMoments(
            n,
            (self._shift + offset) / scale,
            squares / scale**2,
            cubes / scale**3,
            quartics / scale**4,
            self._central_product(offset),
            self._noise(),
        )
        self._clear()
        return moments

    def _arithmetic(self, rows: Rows, scales: Floats) -> type[np.floating]:
        """Return the precision that rows are scaled in: float32 where nothing needs more."""
        low, high = _FLOAT32_SCALES
        if (
            rows.dtype == self._precision == np.float32
            and low < scales.min() <= scales.max() < high
        ):
            return np.float32
        return np.float64

    def _settle(self, rows: Rows, pilot: Indices, factors: Floats | None) -> None:
        """Choose the shift, and the power of two that keeps squares within float32's range."""
        sample = rows[pilot].astype(np.float64)
        if factors is not None:
            sample *= factors[pilot, None]
        largest = float(np.abs(sample).max())
        if largest > 0:
            self._scale = 2.0 ** float(np.clip(-round(np.log2(largest)), -250, 250))
        shift = _mean_of_most(sample) * self._scale
        self._shift = shift.astype(self._precision).astype(np.float64)

    def _multiply(self) -> None:
        if self._held == 0 or self._staged is None or self._squares is None:
            return
        if self._scatter:
            if self._product is None:
                self._product = np.zeros((self._dim, self._dim))
            self._add_product(self._staged[: self._held], self._squares[: self._held])
        self._n += self._held
        self._held = 0

    def _add_product(self, staged: Rows, squares: Rows) -> None:
        assert self._product is not None
        if self._precision is np.float32:
            far = np.flatnonzero(squares > FAR * np.median(squares))
            if len(far):
                add_triangle(on_cpu(staged[far].astype(np.float64)), self._product)
                staged[far] = squares[far] = 0
            self._rounded += float(squares.sum(dtype=np.float64))
        add_triangle(gram(staged), self._product)

    def _central_product(self, offset: Floats) -> Floats | None:
        """Hand the product over, about the mean and in the scale of the rows."""
        product, self._product = self._product, None
        if product is not None:
            finish_scatter(product, offset, float(self._n), self._scale**-2)
        return product

    def _noise(self) -> float:
        """Return the size of spurious eigenvalues: ε‖S‖ for errors that are independent."""
        if self._precision is np.float64:
            return 0.0
        trace = self._rounded / self._scale**2
        return trace * _FLOAT32_ROUNDING / math.sqrt(self._dim)

    def _clear(self) -> None:
        self._n = 0
        self._rounded = 0.0
        self._powers[:] = 0


def _mean_of_most(rows: Floats) -> Floats:
    """Return the mean (dim) of rows (token, dim) but those far from the mean of all."""
    apart = rows - rows.mean(axis=0)
    squares = np.einsum("td,td->t", apart, apart)
    near = squares <= FAR * np.median(squares)
    mean: Floats = rows[near].mean(axis=0)
    return mean
