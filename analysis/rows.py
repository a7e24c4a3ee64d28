"""Where rows come from: an array in memory, a lazy array, or a slab of the store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from analysis.errors import InputError

Rows = npt.NDArray[np.floating]
Indices = npt.NDArray[np.int64]

BLOCK_ROWS: Final = 4096
"""Rows that go into one matrix product; fewer make the float64 additions of products felt."""


class RowSource(Protocol):
    """Rows of one layer, read in token order or picked one by one."""

    @property
    def width(self) -> int:
        """Width of a row."""
        ...

    @property
    def held(self) -> bool:
        """Whether they are in memory, so that it costs nothing to read them again."""
        ...

    def blocks(self, *, rows: int) -> Iterator[tuple[int, Rows]]:
        """Yield (first token, rows (token, dim)) in token order, about ``rows`` at a time."""
        ...

    def rows(self, indices: Indices) -> Rows:
        """Return the rows (token, dim) of rising token numbers."""
        ...


def as_rows(values: npt.ArrayLike) -> Rows:
    """Return values as contiguous float rows: float64 as it is, all else in float32.

    Raises:
        InputError: If the values are not real numbers.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16":
        raise InputError(f"activations must be real numbers, got dtype {array.dtype}")
    dtype = np.float64 if array.dtype == np.float64 else np.float32
    rows: Rows = np.ascontiguousarray(array, dtype=dtype)
    return rows


def aligned_blocks(
    source: RowSource, rows: int = BLOCK_ROWS, *, first: int = 0
) -> Iterator[tuple[int, Rows]]:
    """Yield blocks of exactly ``rows`` rows, so that nothing depends on how they are stored.

    Args:
        source: Where the rows come from.
        rows: Rows of every block but the last.
        first: Number of the first row.

    Yields:
        The first token and the rows (token, dim) of each block. A block is valid until the
        next one is asked for.
    """
    buffer: Rows | None = None
    held = 0
    start = first
    for token, block in source.blocks(rows=rows):
        if token != start + held:
            raise InputError(f"rows must come in token order: expected {start + held}, got {token}")
        taken = 0
        while taken < len(block):
            if held == 0 and len(block) - taken >= rows:
                yield start, block[taken : taken + rows]
                start, taken = start + rows, taken + rows
                continue
            if buffer is None:
                buffer = np.empty((rows, block.shape[1]), block.dtype)
            count = min(rows - held, len(block) - taken)
            buffer[held : held + count] = block[taken : taken + count]
            held, taken = held + count, taken + count
            if held == rows:
                yield start, buffer
                start, held = start + rows, 0
    if buffer is not None and held:
        yield start, buffer[:held]
