"""The rows of a slab, by attention head where it has heads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import xarray as xr

from analysis.inputs import ArrayRows
from analysis.rows import BLOCK_ROWS, Indices, Rows, RowSource
from store.schema import DIM, HEAD, HEAD_DIM, KEY_VALUE_HEAD, TOKEN, unit_dimension
from store.slab import Slab

HELD_BYTES: Final = 256 << 20
"""Size up to which a slab with heads is read once and held; a larger one is read once a head."""


def head_dimension(slab: Slab) -> str | None:
    """Return the name of the dimension of heads of a slab, None without heads."""
    return next((name for name in (HEAD, KEY_VALUE_HEAD) if name in slab.dims), None)


def has_rows(slab: Slab) -> bool:
    """Return whether a slab has rows (token, dim), each head its own or not."""
    names = tuple(name for name in slab.dims if name not in (HEAD, KEY_VALUE_HEAD))
    return names in [(TOKEN, dim) for dim in (DIM, HEAD_DIM, unit_dimension(slab.site))]


def has_values(slab: Slab) -> bool:
    """Return whether a slab has one number a token, each head its own or not."""
    return tuple(name for name in slab.dims if name not in (HEAD, KEY_VALUE_HEAD)) == (TOKEN,)


class SlabRows:
    """Consecutive rows of a slab, numbered as in the slab; a block is valid until the next.

    Args:
        slab: The slab.
        first: The first row.
        stop: One past the last, the last of the slab by default.
    """

    def __init__(self, slab: Slab, first: int = 0, stop: int | None = None) -> None:
        self._slab = slab
        self._first = first
        self._stop = slab.n_tokens if stop is None else stop

    @property
    def width(self) -> int:
        """Width of a row."""
        return self._slab.shape[-1]

    @property
    def held(self) -> bool:
        """False: they are read anew each time."""
        return False

    def blocks(self, *, rows: int) -> Iterator[tuple[int, Rows]]:
        """Yield (first token, rows (token, dim)) in token order, about ``rows`` at a time."""
        yield from self._slab.stretch(self._first, self._stop, rows=rows, reuse=True)

    def rows(self, indices: Indices) -> Rows:
        """Return the rows (token, dim) of rising token numbers."""
        return self._slab.rows(indices)


def row_sources(slab: Slab, *, hold: bool = False) -> list[RowSource]:
    """Return the rows of each head of a slab, of the slab itself without heads.

    A number a token is a row of width 1.

    Args:
        slab: The slab.
        hold: Whether its rows are read into memory, for what reads them several times.
    """
    dimension = head_dimension(slab)
    if dimension is None:
        return [_held(slab) if hold else SlabRows(slab)]
    count = slab.shape[slab.dims.index(dimension)]
    if 4 * int(np.prod(slab.shape)) > HELD_BYTES and has_rows(slab):
        return [SlabRows(replace(slab, head=head)) for head in range(count)]
    values = np.empty(slab.shape, np.float32)
    for start, block in slab.blocks():
        values[:, start : start + block.shape[1]] = block
    if has_values(slab):
        values = values[..., np.newaxis]
    return [ArrayRows(xr.Variable((TOKEN, HEAD_DIM), rows)) for rows in values]


def _held(slab: Slab) -> RowSource:
    """Read all rows of a slab without heads."""
    values = np.empty(slab.shape, np.float32)
    for start, block in SlabRows(slab).blocks(rows=BLOCK_ROWS):
        values[start : start + len(block)] = block
    return ArrayRows(xr.Variable((TOKEN, DIM), values))
