"""From the windows of rows that were computed to blocks of rows in the order of the corpus.

A block is laid out in new arrays straight from the staging of the window that completes it, which
is given up depth by depth as the last block of the window is handed over: so no row is in memory
twice but those that are laid out now. Rows beyond the last complete block are kept until the next
window. Windows end with the sequence that completes a block (`flows.capture.batches.windows`), so
that those rows are few.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flows.capture.freed import passing
from flows.capture.shapes import SiteShape

_Pieces: TypeAlias = "list[tuple[SiteShape, slice]]"
"""Sites, and which layers or blocks of each, that are handed over at once."""

Staged: TypeAlias = "dict[str, list[Tensor]]"
"""Site → for each layer or block, the rows (row, ...) of a window."""

_GIVEN_UP: Final = torch.empty(0)

_Kept: TypeAlias = "dict[str, NDArray[np.float32]]"
"""Site → (depth, row, ...) rows of a block that is not complete, at the front."""


@dataclass(frozen=True)
class RowBlock:
    """Consecutive rows of captured sites.

    Attributes:
        token_start: Number of the first token.
        token_stop: One past the number of the last.
        values: Site → float32 values with the site's dimensions but step, token narrowed.
        part: Number of the stack among those that are captured together.
        depth: Index of its first layer or block among those of the site that are captured.
    """

    token_start: int
    token_stop: int
    values: Mapping[str, NDArray[np.float32]]
    part: int = 0
    depth: int = 0

    @property
    def n_bytes(self) -> int:
        """Size of all values."""
        return sum(values.nbytes for values in self.values.values())


class Blocks:
    """Gathers rows into blocks that start at multiples of a fixed number of rows.

    Args:
        shapes: Sizes of the sites.
        n_rows: Number of rows of the corpus.
        block_rows: Rows of a block.
        part: Number of the stack among those that are captured together.
        depth: Number of layers or blocks that other passes capture before these.
        piece_bytes: Size to which the rows of one site are divided by layers or blocks, one at
            least, and handed over by themselves; whole blocks of all sites when None.
    """

    def __init__(
        self,
        shapes: Sequence[SiteShape],
        n_rows: int,
        block_rows: int,
        *,
        part: int = 0,
        depth: int = 0,
        piece_bytes: int | None = None,
    ) -> None:
        self._shapes, self._part, self._depth = shapes, part, depth
        self._n_rows, self._block_rows = n_rows, block_rows
        self._piece_bytes = piece_bytes
        self._start = 0
        # Rows of the block from there on that have come, at the front of arrays that hold it all.
        self._n_kept = 0
        self._kept: _Kept = {}

    def add(self, rows: NDArray[np.int64], staged: Staged) -> Iterator[RowBlock]:
        """Take the next window's rows, and yield the blocks that they complete.

        Args:
            rows: (row,) numbers of the rows, a permutation of the next ones of the corpus.
            staged: Their values, which are given up while blocks are yielded: lists are emptied.
        """
        left = np.argsort(rows)
        while len(left) and self._n_kept + len(left) >= self._size:
            picked, left = np.split(left, [self._size - self._n_kept])
            stop = self._start + self._size
            is_last = len(left) < self._size_at(stop) or not len(left)
            # Kept first, so that the staging can be given up.
            kept = self._keep({}, 0, left, staged, self._size_at(stop)) if is_last else {}
            for pieces in self._pieces():
                yield RowBlock(
                    self._start,
                    stop,
                    {
                        shape.name: self._laid_out(shape, depths, picked, staged, is_last)
                        for shape, depths in pieces
                    },
                    self._part,
                    self._depth + pieces[0][1].start,
                )
            self._start, self._n_kept, self._kept = stop, len(left) if is_last else 0, kept
            if is_last:
                return
        self._keep(self._kept, self._n_kept, left, staged, self._size)
        self._n_kept += len(left)

    @property
    def _size(self) -> int:
        return self._size_at(self._start)

    def _size_at(self, start: int) -> int:
        """Return how many rows the block has that starts with a row."""
        return min(self._block_rows, self._n_rows - start)

    def _pieces(self) -> list[_Pieces]:
        if self._piece_bytes is None:
            return [[(shape, slice(0, shape.depth)) for shape in self._shapes]]
        found: list[_Pieces] = []
        for shape in self._shapes:
            count = max(1, self._piece_bytes // _bytes(shape, self._size))
            starts = range(0, shape.depth, count)
            found += [[(shape, slice(s, min(s + count, shape.depth)))] for s in starts]
        return found

    def _laid_out(
        self,
        shape: SiteShape,
        depths: slice,
        picked: NDArray[np.int64],
        staged: Staged,
        is_last: bool,
    ) -> NDArray[np.float32]:
        """Return the rows of the block at some depths, with the dimensions of the site.

        Nothing more is wanted of them in the window if it is the last block.
        """
        kept = self._kept.get(shape.name)
        if kept is not None and self._piece_bytes is None:
            laid = kept
        else:
            laid = _empty(shape, depths.stop - depths.start, self._size)
            if kept is not None:
                laid[:, : self._n_kept] = kept[depths, : self._n_kept]
        own = staged[shape.name]
        _take(own[depths], picked, laid[:, self._n_kept :])
        if is_last:
            own[depths] = [_GIVEN_UP] * len(own[depths])
        return shape.in_store_order(laid)

    def _keep(
        self, kept: _Kept, n_kept: int, left: NDArray[np.int64], staged: Staged, size: int
    ) -> _Kept:
        """Put rows after those that are kept of a block of some size, and return them."""
        for shape in self._shapes if len(left) else ():
            if shape.name not in kept:
                # Of an array for the whole block, only the rows that come take memory.
                kept[shape.name] = _empty(shape, shape.depth, size, filled=False)
            _take(staged[shape.name], left, kept[shape.name][:, n_kept : n_kept + len(left)])
        return kept


def _take(staged: Sequence[Tensor], picked: NDArray[np.int64], goal: NDArray[np.float32]) -> None:
    """Copy some rows (depth, row, ...) of a staging, one depth after the other."""
    for values, out in zip(staged, goal, strict=True):
        np.take(values.numpy(), picked, axis=0, out=out, mode="clip")


def _empty(shape: SiteShape, depth: int, rows: int, *, filled: bool = True) -> NDArray[np.float32]:
    return passing((depth, rows, *shape.features), filled=filled)


def _bytes(shape: SiteShape, rows: int) -> int:
    """Return the size of rows of a site at one depth."""
    return 4 * rows * math.prod(shape.features)
