"""Sums of unit vectors by sequence, while the rows of the sequences go by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.moments import Directions
from analysis.outliers import DROPPED, OUTLIER, TYPICAL, UNDECIDED, Parts
from analysis.row_kernels import square_sums, sum_directions
from analysis.rows import Indices, Rows

Floats = npt.NDArray[np.float64]

_PARTS: Final = 4
_TILE_ROWS: Final = 2048


@dataclass
class _Open:
    """A sequence of which more rows may come."""

    sequence: int
    sums: Floats
    counts: Indices


@dataclass
class _Closed:
    """Whole sequences: squared norms of their sums, and numbers of their rows (sequence)."""

    whole: tuple[Floats, Indices]
    content: tuple[Floats, Indices]
    typical: tuple[Floats, Indices]


@dataclass
class GroupDirections:
    """Directions of one group of sequences, for the populations that differ.

    Attributes:
        whole: Directions of ``all``.
        content: Directions of ``content``, and of ``unit``.
        typical: Directions of ``typical``, without the undecided rows and their sequences.
        deferred: Numbers of the sequences with undecided rows (sequence).
        deferred_sums: Sums over their typical rows (sequence, dim).
        deferred_counts: Number of those rows (sequence).
    """

    whole: Directions
    content: Directions
    typical: Directions
    deferred: list[int]
    deferred_sums: list[Floats]
    deferred_counts: list[int]


class SequenceSums:
    """Accumulates directions over contiguous sequences, one group of them at a time.

    Args:
        dim: Width of the rows.
        sequence: Number of the sequence of each row (token), None for independent rows.
    """

    def __init__(self, dim: int, sequence: Indices | None) -> None:
        self._dim = dim
        self._sequence = sequence
        self._open: _Open | None = None
        self._group = self._new_group()
        self._closed: list[_Closed] = []

    def add(self, start: int, rows: Rows, inverse: Floats, parts: Parts) -> None:
        """Add consecutive rows of one group.

        Args:
            start: Number of the first row.
            rows: The rows (token, dim).
            inverse: One over the norm of each row (token), 0 for a row of zeros.
            parts: Part of each row (token).
        """
        for first in range(0, len(rows), _TILE_ROWS):
            tile = slice(first, first + _TILE_ROWS)
            self._add_tile(start + first, rows[tile], inverse[tile], parts[tile])

    def take(self) -> GroupDirections:
        """Return the directions of the rows added since the last call, and start afresh."""
        if self._open is not None:
            self._close(self._open.sums[None], self._open.counts[None], [self._open.sequence])
            self._open = None
        group, self._group = self._group, self._new_group()
        closed, self._closed = self._closed, []
        for directions, part in (
            (group.whole, [one.whole for one in closed]),
            (group.content, [one.content for one in closed]),
            (group.typical, [one.typical for one in closed]),
        ):
            if part:
                squares, counts = (np.concatenate(column) for column in zip(*part, strict=True))
                directions.add_sequences(squares, counts)
        return group

    def _add_tile(self, start: int, rows: Rows, inverse: Floats, parts: Parts) -> None:
        numbers, segment = self._segments(start, len(rows))
        sums = np.zeros((len(numbers), _PARTS, self._dim))
        squares = np.zeros((_PARTS, self._dim))
        sum_directions(rows, inverse, parts, segment, sums, squares)
        directed = (parts != DROPPED) & (inverse > 0)
        cells = segment[directed] * _PARTS + parts[directed]
        counts = np.bincount(cells, minlength=len(numbers) * _PARTS).reshape(-1, _PARTS)
        self._add_totals(sums.sum(axis=0), squares, counts.sum(axis=0))
        if self._sequence is None:
            return
        self._continue(numbers, sums, counts)

    def _segments(self, start: int, n: int) -> tuple[list[int], Indices]:
        if self._sequence is None:
            return [0], np.zeros(n, np.int64)
        sequence = self._sequence[start : start + n]
        change = np.diff(sequence) != 0
        segment = np.concatenate([[0], np.cumsum(change)]).astype(np.int64)
        return [int(sequence[0]), *sequence[1:][change].tolist()], segment

    def _continue(self, numbers: list[int], sums: Floats, counts: Indices) -> None:
        """Close every sequence of a tile but the last, which the next tile may continue."""
        if self._open is not None and self._open.sequence == numbers[0]:
            sums[0] += self._open.sums
            counts[0] += self._open.counts
        elif self._open is not None:
            self._close(self._open.sums[None], self._open.counts[None], [self._open.sequence])
        self._close(sums[:-1], counts[:-1], numbers[:-1])
        self._open = _Open(numbers[-1], sums[-1].copy(), counts[-1])

    def _add_totals(self, sums: Floats, squares: Floats, counts: Indices) -> None:
        group = self._group
        for directions, parts in (
            (group.whole, slice(0, _PARTS)),
            (group.content, slice(TYPICAL, _PARTS)),
            (group.typical, slice(TYPICAL, OUTLIER)),
        ):
            directions.n += int(counts[parts].sum())
            directions.total += sums[parts].sum(axis=0)
            directions.squares += squares[parts].sum(axis=0)

    def _close(self, sums: Floats, counts: Indices, numbers: list[int]) -> None:
        group = self._group
        decided = counts[:, UNDECIDED] == 0
        typical = _squares(sums, TYPICAL, TYPICAL)
        self._closed.append(
            _Closed(
                (_squares(sums, 0, UNDECIDED), counts.sum(axis=1)),
                (_squares(sums, TYPICAL, UNDECIDED), counts[:, TYPICAL:].sum(axis=1)),
                (typical[decided], counts[decided, TYPICAL]),
            )
        )
        for i in np.flatnonzero(~decided):
            group.deferred.append(numbers[i])
            group.deferred_sums.append(sums[i, TYPICAL].copy())
            group.deferred_counts.append(int(counts[i, TYPICAL]))

    def _new_group(self) -> GroupDirections:
        whole, content, typical = (Directions.zero(self._dim) for _ in range(3))
        return GroupDirections(whole, content, typical, [], [], [])


def _squares(sums: Floats, first: int, last: int) -> Floats:
    """Return the squared norms (segment) of sums (segment, part, dim) over consecutive parts."""
    squares = np.empty(len(sums))
    square_sums(sums, first, last, squares)
    return squares
