"""The rows of one population of a layer, read again after the first pass over them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.direction_kernels import multiply_rows, project_rows
from analysis.krylov import PILOT_ROWS
from analysis.layer import LayerStatistics
from analysis.populations import Population
from analysis.rows import Indices, Rows, RowSource, aligned_blocks

Floats = npt.NDArray[np.float64]

_NORMS: Final = (2.0**-100, 2.0**100)
"""Norms that float32 can divide by."""


class PopulationRows:
    """The rows of a population, scaled as it wants them; read anew by every method.

    Args:
        source: The rows of the layer, in the order of their sequences.
        layer: What the first pass found.
        population: Which rows.
    """

    def __init__(self, source: RowSource, layer: LayerStatistics, population: Population) -> None:
        self._source = source
        self._layer = layer
        self._population = population

    @cached_property
    def _members(self) -> Indices:
        """Numbers of the rows (row)."""
        return np.flatnonzero(self._layer.members(self._population))

    @cached_property
    def _factors(self) -> Floats:
        """What each row of the layer is multiplied by (token)."""
        factors = np.ones_like(self._layer.norms)
        if self._population.unit:
            factors[self._members] = 1 / self._layer.norms[self._members]
        return factors

    @property
    def precision(self) -> type[np.floating]:
        """Precision of the rows, as far as norms tell it."""
        return np.float64 if self._layer.peaks.dtype == np.float64 else np.float32

    @property
    def sizes(self) -> Indices:
        """Number of the rows in each group of sequences (group)."""
        return np.diff(np.searchsorted(self._members, self._layer.bounds))

    @property
    def narrow(self) -> bool:
        """Whether float32 can scale the rows."""
        norms = self._layer.norms[self._members]
        return not self._population.unit or bool(
            _NORMS[0] < norms.min(initial=1.0) <= norms.max(initial=1.0) < _NORMS[1]
        )

    def pilot(self) -> Rows:
        """Return some of the rows (token, dim), spread over all of them."""
        count = min(PILOT_ROWS, len(self._members))
        chosen = np.linspace(0, len(self._members) - 1, count).astype(np.int64)
        tokens = self._members[chosen]
        return self._scaled(self._source.rows(tokens), tokens)

    def blocks(self) -> Iterator[tuple[Indices, Rows]]:
        """Yield the numbers of some rows (token) and the rows (token, dim), in turn."""
        for here, rows, start in self._chosen():
            kept = rows if len(here) == len(rows) else rows[here]
            yield start + here, self._scaled(kept, start + here)

    def grouped(self) -> Iterator[tuple[int, Rows]]:
        """Yield the group of sequences of some rows and the rows (token, dim), in turn."""
        for tokens, rows in self.blocks():
            groups = np.searchsorted(self._layer.bounds, tokens, side="right") - 1
            for group in np.unique(groups).tolist():
                yield group, rows[groups == group]

    def times(self, directions: Rows, shift: Rows) -> tuple[Rows, Floats]:
        """Multiply the rows about a shift by a few directions and back, in their precision.

        Args:
            directions: An even number of directions (component, dim).
            shift: The shift (dim), in the same precision.

        Returns:
            How far each row lies along each of them (row, component), and the sum of rows times
            that (component, dim).
        """
        along = np.empty((len(self._members), len(directions)), directions.dtype)
        product = np.zeros(directions.shape)
        held = 0
        for here, rows, start in self._chosen():
            factors = self._factors[start : start + len(rows)].astype(directions.dtype)
            place = slice(held, held + len(here))
            multiply_rows(rows, here, factors, shift, directions, along[place], product)
            held += len(here)
        return along, product

    def along(self, direction: Floats, mean: Floats) -> tuple[Floats, Floats]:
        """Return how far rows lie from their mean, in float64 throughout.

        Args:
            direction: A direction (dim).
            mean: Their mean (dim).

        Returns:
            For each row its distance along the direction (row), and its squared distance (row).
        """
        lengths, squares = np.empty((2, len(self._members)))
        held = 0
        for here, rows, start in self._chosen():
            place = slice(held, held + len(here))
            factors = self._factors[start : start + len(rows)]
            project_rows(rows, here, factors, mean, direction, lengths[place], squares[place])
            held += len(here)
        return lengths, squares

    def _chosen(self) -> Iterator[tuple[Indices, Rows, int]]:
        """Yield which rows of a block are of the population, the block, and its first row."""
        for start, rows in aligned_blocks(self._source):
            first, last = np.searchsorted(self._members, (start, start + len(rows)))
            yield self._members[first:last] - start, rows, start

    def _scaled(self, rows: Rows, tokens: Indices) -> Rows:
        if not self._population.unit:
            return rows
        scaled: Rows = (rows / self._layer.norms[tokens, None]).astype(rows.dtype)
        return scaled
