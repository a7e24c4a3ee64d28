"""One pass over the rows of a layer, for every population and every group of sequences.

Rows fall into disjoint parts, each accumulated once: what ``content`` leaves out, typical rows,
norm outliers. Populations are put together from the parts at the end, so that ``all``,
``content`` and ``typical`` share one matrix product a block; ``unit`` takes a second one.

Whether a row is an outlier depends on the median norm of all rows, known only at the end. A
running estimate decides the clear cases and the pass keeps the rows in between; at the end the
exact median decides those and confirms the rest. Where it does not, because the first rows of
a layer were unlike the later ones, a second pass starts from the exact median.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.errors import InputError, NonFiniteRowsError, TooFewRowsError
from analysis.groups import SCATTER_BYTES, group_bounds, group_count
from analysis.layer import LayerStatistics, UndecidedRows, needed_keys
from analysis.moment_kernels import measure_norms
from analysis.outliers import DROPPED, TYPICAL, UNDECIDED, OutlierRule, Parts
from analysis.parts import PartMoments
from analysis.populations import Population, TokenTable
from analysis.rows import Indices, Rows, RowSource, aligned_blocks
from analysis.sequences import GroupDirections, SequenceSums
from analysis.shapes import SequenceShapes, Shapes

Floats = npt.NDArray[np.float64]

_UNDECIDED_BYTES: Final = 64 << 20
"""Undecided rows kept; beyond, only norms are collected, for a second pass."""


@dataclass(frozen=True)
class Request:
    """What a pass has to collect.

    Attributes:
        populations: Populations asked for.
        scatter: Whether products between dimensions are needed.
        shapes: Whether shapes of whole sequences are needed.
        errors: Whether standard errors are wanted, so that scatters are kept by group.
        drop_nonfinite: Whether rows with NaN or infinity are left out, instead of refused.
        precise: Whether products run in float64 instead of float32.
        memory: Bytes that a worker has, None where that was not stated.
    """

    populations: tuple[Population, ...]
    scatter: bool = True
    shapes: bool = False
    errors: bool = True
    drop_nonfinite: bool = False
    precise: bool = False
    memory: int | None = None

    @property
    def scatter_bytes(self) -> int:
        """Memory for the scatters of groups."""
        return SCATTER_BYTES if self.memory is None else min(SCATTER_BYTES, self.memory // 4)

    @property
    def undecided_bytes(self) -> int:
        """Memory for rows that wait for the exact median norm."""
        return _UNDECIDED_BYTES if self.memory is None else min(_UNDECIDED_BYTES, self.memory // 8)


def pass_over(source: RowSource, table: TokenTable, request: Request) -> LayerStatistics:
    """Collect the statistics of a layer in one pass, or two where its norms demand it.

    Args:
        source: The rows, in the order of their sequences.
        table: What is known about them.
        request: What to collect.

    Raises:
        TooFewRowsError: If there are no rows.
        NonFiniteRowsError: If rows hold NaN or infinity and are not to be dropped.
        InputError: If the rows do not fit the table.
    """
    first = _Pass(table, request, exact=None)
    statistics = first.run(source)
    if statistics is None:
        statistics = _Pass(table, request, exact=first.median()).run(source)
    assert statistics is not None
    return statistics


class _Pass:
    def __init__(self, table: TokenTable, request: Request, *, exact: float | None) -> None:
        if table.n == 0:
            raise TooFewRowsError("there are no rows to measure: the token axis is empty")
        typical = any(population.typical for population in request.populations)
        self._table = table
        self._request = request
        self._separate = typical
        self._rule = OutlierRule(table.codes, exact=exact, separate=typical)
        self._norms = np.empty(table.n)
        self._parts = np.empty(table.n, np.int8)
        self._undecided = _UndecidedBuffer(request.undecided_bytes)
        self._collected: _Collected | None = None

    def run(self, source: RowSource) -> LayerStatistics | None:
        """Go over the rows; return nothing if the exact median refutes what was decided."""
        read = 0
        for start, rows in aligned_blocks(source):
            read = start + len(rows)
            if read > self._table.n:
                break
            self._add_block(start, rows)
        if read != self._table.n:
            raise InputError(f"the token table describes {self._table.n} rows, there are {read}")
        median = self.median()
        refuted = self._separate and not self._rule.confirmed(median)
        if self._collected is None or self._undecided.overflowing or refuted:
            return None
        return self._finish(self._collected, median)

    def median(self) -> float:
        """Return the median norm of content, NaN without content."""
        norms = self._norms[self._parts >= TYPICAL]
        return float(np.median(norms)) if len(norms) else math.nan

    def _add_block(self, start: int, rows: Rows) -> None:
        norms = self._norms[start : start + len(rows)]
        measure_norms(rows, norms)
        parts = self._rule.sort(start, norms)
        self._parts[start : start + len(rows)] = parts
        if not self._request.drop_nonfinite:
            _refuse_nonfinite(start, parts)
        self._undecided.add(start, rows, parts)
        if self._undecided.overflowing:
            return
        if self._collected is None:
            self._collected = _Collected(rows.shape[1], self._table, self._request)
        usable = (parts != DROPPED) & (norms > 0)
        inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=usable)
        self._collected.add(start, rows, inverse, parts)

    def _finish(self, collected: _Collected, median: float) -> LayerStatistics:
        return LayerStatistics(
            dim=collected.dim,
            scatter=self._request.scatter,
            totals=collected.moments.totals,
            groups=collected.moments.groups,
            directions=collected.directions,
            shapes=collected.shapes,
            bounds=collected.bounds,
            norms=self._norms,
            parts=self._parts,
            sequence=self._table.sequence,
            undecided=self._undecided.rows(collected.dim),
            median=median,
        )


class _Collected:
    """Everything that is summed, which needs to know the width of the rows."""

    def __init__(self, dim: int, table: TokenTable, request: Request) -> None:
        keys = needed_keys(request.populations)
        self.dim = dim
        scatters = len(keys) if request.errors else 0
        self.bounds = group_bounds(table, group_count(dim, scatters, request.scatter_bytes))
        self.moments = PartMoments(
            dim,
            keys,
            scatter=request.scatter,
            keep_scatters=request.errors,
            precise=request.precise,
        )
        self.directions: list[GroupDirections] = []
        self.shapes: list[Mapping[str, Shapes]] = []
        self._sequences = SequenceSums(dim, table.sequence)
        self._shapes: SequenceShapes | None = None
        if request.shapes and table.sequence is not None:
            self._shapes = SequenceShapes(table.sequence, request.populations)

    def add(self, start: int, rows: Rows, inverse: Floats, parts: Parts) -> None:
        """Add a block of rows, cut where a group of sequences ends."""
        stop = start + len(rows)
        ends = self.bounds[(self.bounds > start) & (self.bounds < stop)].tolist()
        for first, last in itertools.pairwise([start, *ends, stop]):
            piece = slice(first - start, last - start)
            self.moments.add(rows[piece], inverse[piece], parts[piece])
            self._sequences.add(first, rows[piece], inverse[piece], parts[piece])
            if self._shapes is not None:
                self._shapes.add(first, rows[piece], parts[piece])
            if last in self.bounds:
                self.moments.close_group()
                self.directions.append(self._sequences.take())
                self.shapes.append({} if self._shapes is None else self._shapes.take())


class _UndecidedBuffer:
    """The rows that wait for the exact median, as long as they are few."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._values: list[Floats] = []
        self._tokens: list[Indices] = []
        self._bytes = 0

    @property
    def overflowing(self) -> bool:
        return self._bytes > self._most

    def add(self, start: int, rows: Rows, parts: Parts) -> None:
        chosen = np.flatnonzero(parts == UNDECIDED)
        self._bytes += 8 * len(chosen) * rows.shape[1]
        if self.overflowing:
            self._values.clear()
        elif len(chosen):
            self._values.append(rows[chosen].astype(np.float64))
            self._tokens.append(start + chosen)

    def rows(self, dim: int) -> UndecidedRows:
        values = np.concatenate([np.empty((0, dim)), *self._values])
        return UndecidedRows(values, np.concatenate([np.empty(0, np.int64), *self._tokens]))


def _refuse_nonfinite(start: int, parts: Parts) -> None:
    dropped = np.flatnonzero(parts == DROPPED)
    if len(dropped):
        raise NonFiniteRowsError(
            f"{len(dropped)} of the rows {start} to {start + len(parts) - 1} hold NaN or infinity,"
            f" row {start + dropped[0]} is the first; expected finite activations. Rows like these"
            " are left out, and counted, only for a step that was stored with non-finite values"
        )
