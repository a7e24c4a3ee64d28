"""From the windows of rows that were computed to blocks of rows in the order of the corpus.

The rows of a window lie in that order already, so that a block is a view of them, and no row is in
memory twice. They are given up depth by depth as the last block of the window is handed over. Rows
beyond the last complete block are kept until the next window. Windows end with the sequence that
completes a block (`flows.capture.batches.windows`), so that those rows are few.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flows.capture.freed import passing
from flows.capture.shapes import SiteShape

Staged: TypeAlias = "dict[str, list[NDArray[np.float32]]]"
"""Site → for some layers or blocks each, rows (depth, row, ...) from the start of a block on."""

_GIVEN_UP: Final = np.empty(0, dtype=np.float32)


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


def depths_together(
    shapes: Sequence[SiteShape], n_rows: int, block_rows: int, piece_bytes: int | None
) -> dict[str, int]:
    """Return how many layers or blocks of each site are handed over at once.

    Args:
        shapes: Sizes of the sites.
        n_rows: Number of rows of the corpus.
        block_rows: Rows of a block.
        piece_bytes: Size to which the rows of one site are divided by layers or blocks, one at
            least, and handed over by themselves; whole blocks of all sites when None.
    """
    if piece_bytes is None:
        return {shape.name: shape.depth for shape in shapes}
    rows = max(1, min(block_rows, n_rows))
    sizes = {shape.name: 4 * rows * math.prod(shape.features) for shape in shapes}
    return {name: max(1, piece_bytes // size) for name, size in sizes.items()}


class Blocks:
    """Gathers rows into blocks that start at multiples of a fixed number of rows.

    Args:
        shapes: Sizes of the sites.
        n_rows: Number of rows of the corpus.
        block_rows: Rows of a block.
        part: Number of the stack among those that are captured together.
        depth: Number of layers or blocks that other passes capture before these.
        piece_bytes: As for `depths_together`.
        copied: Whether blocks are copies, since what they come from is used again.
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
        copied: bool = False,
    ) -> None:
        self._shapes, self._part, self._depth = shapes, part, depth
        self._n_rows, self._block_rows = n_rows, block_rows
        self._together = depths_together(shapes, n_rows, block_rows, piece_bytes)
        self._whole = piece_bytes is None
        self._copied = copied
        self._start = 0
        self._kept: Staged = {}

    def add(self, stop: int, staged: Staged) -> Iterator[RowBlock]:
        """Take the next window's rows, and yield the blocks that they complete.

        Args:
            stop: One past the number of the last row that has come.
            staged: Values from the start of the first block that is not complete on, of which
                rows of earlier windows are put in; they are given up while blocks are yielded.
        """
        origin = self._start
        for name, kept in self._kept.items():
            for own, former in zip(staged[name], kept, strict=True):
                own[:, : former.shape[1]] = former
        while (size := self._size_at(self._start)) and stop - self._start >= size:
            rows = slice(self._start - origin, self._start - origin + size)
            self._start += size
            following = self._size_at(self._start)
            is_last = not following or stop - self._start < following
            if is_last:
                # First, so that the staging can be given up.
                self._keep(staged, slice(rows.stop, stop - origin), give_up=False)
            yield from self._handed_over(staged, rows, give_up=is_last)
        if self._start == origin:
            self._keep(staged, slice(0, stop - origin), give_up=True)

    def _size_at(self, start: int) -> int:
        """Return how many rows the block has that starts with a row."""
        return min(self._block_rows, self._n_rows - start)

    def _handed_over(self, staged: Staged, rows: slice, *, give_up: bool) -> Iterator[RowBlock]:
        """Yield the pieces of the block that has just become complete."""
        span = self._start - (rows.stop - rows.start), self._start
        if self._whole:
            values = {
                shape.name: self._piece(shape, staged, 0, rows, give_up) for shape in self._shapes
            }
            yield RowBlock(*span, values, self._part, self._depth)
            return
        for shape in self._shapes:
            for number, depths in enumerate(shape.divided(self._together[shape.name])):
                yield RowBlock(
                    *span,
                    {shape.name: self._piece(shape, staged, number, rows, give_up)},
                    self._part,
                    self._depth + depths.start,
                )

    def _piece(
        self, shape: SiteShape, staged: Staged, number: int, rows: slice, give_up: bool
    ) -> NDArray[np.float32]:
        """Return rows of some depths, with the dimensions of the site."""
        own = staged[shape.name]
        piece = own[number][:, rows]
        if give_up:
            own[number] = _GIVEN_UP
        return shape.in_store_order(_copy(piece) if self._copied else piece)

    def _keep(self, staged: Staged, rows: slice, *, give_up: bool) -> None:
        """Keep rows of a block that is not complete, and nothing else."""
        self._kept = {}
        for name, own in staged.items() if rows.stop > rows.start else ():
            kept = self._kept[name] = []
            for number, values in enumerate(own):
                kept.append(_copy(values[:, rows]))
                if give_up:
                    own[number] = _GIVEN_UP


def _copy(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    copy = passing(rows.shape)
    copy[:] = rows
    return copy
