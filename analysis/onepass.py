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
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from analysis import magnitudes
from analysis.errors import InputError, NonFiniteRowsError, TooFewRowsError
from analysis.layer import LayerStatistics, UndecidedRows, needed_keys
from analysis.magnitudes import Sizes
from analysis.outliers import DROPPED, UNDECIDED, OutlierRule, Parts
from analysis.partial import PartialPass, PartialSums, combine, median_norm
from analysis.parts import PartMoments
from analysis.populations import TokenTable
from analysis.request import Request
from analysis.rows import Indices, Rows, RowSource, aligned_blocks
from analysis.sequences import GroupDirections, SequenceSums
from analysis.shapes import SequenceShapes, Shapes

Floats = npt.NDArray[np.float64]


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
    return pass_over_all(source, [(table, request)])[0]


def pass_over_all(
    source: RowSource, wanted: Sequence[tuple[TokenTable, Request]]
) -> list[LayerStatistics]:
    """Collect the statistics of several choices of the rows of a layer, reading them once.

    Args:
        source: The rows, in the order of their sequences.
        wanted: For each choice what is known about the rows, and what to collect.

    Raises:
        TooFewRowsError: If there are no rows.
        NonFiniteRowsError: If rows hold NaN or infinity and are not to be dropped.
        InputError: If the rows do not fit a table.
    """
    layers = []
    found = _run(source, [_Pass(rows, request, (0, rows.n), None) for rows, request in wanted])
    for (table, request), one in zip(wanted, found, strict=True):
        statistics = combine([one], request, table.sequence)
        if statistics is None:
            again = pass_part(source, table, request, exact=median_norm([one]))
            statistics = combine([again], request, table.sequence)
        assert statistics is not None
        layers.append(statistics)
    return layers


def pass_part(
    source: RowSource,
    table: TokenTable,
    request: Request,
    *,
    rows: tuple[int, int] | None = None,
    exact: float | None = None,
) -> PartialPass:
    """Pass over some rows of a layer, all of them by default.

    Args:
        source: These rows, numbered as in the layer.
        table: What is known about all rows of the layer.
        request: What to collect.
        rows: The first of these rows, and one past the last; bounds of groups of sequences.
        exact: The median norm of content of the layer, where it is known.

    Raises:
        TooFewRowsError: If there are no rows.
        NonFiniteRowsError: If rows hold NaN or infinity and are not to be dropped.
        InputError: If the rows do not fit the table.
    """
    return _run(source, [_Pass(table, request, rows or (0, table.n), exact)])[0]


def _run(source: RowSource, passes: Sequence[_Pass]) -> list[PartialPass]:
    """Go over the rows once for several passes over the same ones."""
    if not passes:
        return []
    first, stop = passes[0].first, passes[0].stop
    if first == stop:
        raise TooFewRowsError("there are no rows to measure: the token axis is empty")
    read = first
    for start, rows in aligned_blocks(source, first=first):
        read = start + len(rows)
        if read > stop:
            break
        for one in passes:
            one.add(start, rows)
    if read != stop:
        raise InputError(f"the token table describes {stop} rows, there are {read}")
    return [one.finish() for one in passes]


class _Pass:
    def __init__(
        self, table: TokenTable, request: Request, rows: tuple[int, int], exact: float | None
    ) -> None:
        self._table = table
        self._request = request
        self.first, self.stop = rows
        separate = any(population.typical for population in request.populations)
        self._rule = OutlierRule(table.codes, exact=exact, separate=separate)
        self._norms = np.empty(self.stop - self.first)
        self._peaks: Sizes = np.empty(0)
        self._drawn: Sizes = np.empty((0, 0))
        self._parts = np.empty(self.stop - self.first, np.int8)
        self._undecided = _UndecidedBuffer(request.undecided_bytes)
        self._collected: _Collected | None = None

    def add(self, start: int, rows: Rows) -> None:
        """Add consecutive rows, the first of them the one numbered ``start``."""
        place = slice(start - self.first, start - self.first + len(rows))
        norms = self._norms[place]
        if place.start == 0:
            count = magnitudes.drawn_per_row(self._table.n, rows.shape[1])
            self._peaks = np.empty(len(self._norms), rows.dtype)
            self._drawn = np.empty((len(self._norms), count), rows.dtype)
        magnitudes.measure(rows, start, norms, self._peaks[place], self._drawn[place])
        parts = self._rule.sort(start, norms)
        self._parts[place] = parts
        if not self._request.drop_nonfinite:
            _refuse_nonfinite(start, parts)
        self._undecided.add(start, rows, parts)
        if self._undecided.overflowing:
            self._collected = None
            return
        if self._collected is None:
            self._collected = _Collected(rows.shape[1], self._table, self._request)
        usable = (parts != DROPPED) & (norms > 0)
        inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=usable)
        self._collected.add(start, rows, inverse, parts)

    def finish(self) -> PartialPass:
        """Return what was found."""
        collected = self._collected
        return PartialPass(
            first=self.first,
            norms=self._norms,
            peaks=self._peaks,
            drawn=self._drawn,
            parts=self._parts,
            sums=None
            if collected is None
            else PartialSums(
                dim=collected.dim,
                bounds=collected.bounds,
                totals=collected.moments.totals,
                groups=collected.moments.groups,
                directions=collected.directions,
                shapes=collected.shapes,
                undecided=self._undecided.rows(collected.dim),
            ),
            largest_typical=self._rule.largest_typical,
            smallest_outlier=self._rule.smallest_outlier,
        )


class _Collected:
    """Everything that is summed, which needs to know the width of the rows."""

    def __init__(self, dim: int, table: TokenTable, request: Request) -> None:
        keys = needed_keys(request.populations) if request.central else ()
        self.dim = dim
        self.bounds = request.bounds(dim, table)
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
