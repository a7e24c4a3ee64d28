"""Reading rows, and what is known about them, out of labelled arrays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import xarray as xr

from analysis.errors import InputError
from analysis.populations import TokenTable
from analysis.rows import Indices, Rows, as_rows
from store.schema import DIM, HEAD_DIM, TOKEN

COORDINATES = ("special", "position", "sequence")
"""Token coordinates from which populations and sequences are known."""

TOKEN_ID = "token_id"
"""Token coordinate from which frequencies are known, where it is there."""

CAUSAL = "causal"
"""Attribute of a model: whether tokens attend only to earlier ones."""


class ArrayRows:
    """Rows of an array (token, dim), NumPy or Dask, of which one chunk at a time is in memory.

    Args:
        array: The rows (token, dim).
        order: Numbers of the rows (token) in the order in which they are to be read.
    """

    def __init__(self, array: xr.Variable, order: Indices | None = None) -> None:
        if array.ndim != 2:
            raise InputError(f"rows must have two dimensions, got {array.dims}")
        self._array = array
        self._order = order
        # A lazy array makes anew what an array in memory shows part of.
        self._in_memory = array.chunks is None and np.shares_memory(
            array[:1].values, array[:1].values
        )

    @property
    def width(self) -> int:
        """Width of a row."""
        return int(self._array.shape[1])

    @property
    def held(self) -> bool:
        """Whether the rows are in memory, so that it costs nothing to read them again."""
        return self._in_memory and self._order is None

    def blocks(self, *, rows: int) -> Iterator[tuple[int, Rows]]:
        """Yield (first token, rows (token, dim)) in the chosen order."""
        if self._order is not None:
            for start in range(0, len(self._order), rows):
                yield start, self._read(self._order[start : start + rows])
            return
        for start, stop in self._cuts(rows):
            yield start, self._read(slice(start, stop))

    def rows(self, indices: Indices) -> Rows:
        """Return the rows (token, dim) of the given numbers in the chosen order."""
        return self._read(indices if self._order is None else self._order[indices])

    def _read(self, key: slice | Indices) -> Rows:
        return as_rows(self._array[key].values)

    def _cuts(self, rows: int) -> Iterator[tuple[int, int]]:
        """Cut where a Dask array does, since a cut inside a chunk would compute it twice."""
        chunks = self._array.chunks
        n = self._array.shape[0]
        if self._in_memory and self._array.dtype in (np.float32, np.float64):
            # Nothing is copied, and so nothing is gained by cuts.
            yield 0, n
            return
        if chunks is None:
            yield from ((start, min(start + rows, n)) for start in range(0, n, rows))
            return
        start = stop = 0
        for length in chunks[0]:
            stop += length
            if stop - start >= rows:
                yield start, stop
                start = stop
        if stop > start:
            yield start, stop


def width_dimension(array: xr.DataArray) -> str:
    """Return the name of the dimension along a row.

    Raises:
        InputError: If the array has no rows, that is, not the dimensions (token, dim).
    """
    for name in (DIM, HEAD_DIM):
        if TOKEN in array.dims and name in array.dims:
            return name
    raise InputError(
        f"activations need the dimensions ({TOKEN!r}, {DIM!r}), got {tuple(array.dims)};"
        f" rename yours, for example array.rename(x={TOKEN!r}, y={DIM!r})"
    )


def read_table(array: xr.DataArray, causal: bool | None) -> tuple[TokenTable, Indices | None]:
    """Return what is known about the rows of an array, in the order of their sequences.

    Args:
        array: Activations with the dimension ``token`` and perhaps token coordinates.
        causal: Whether tokens attend only to earlier ones; None to take it from the attributes.

    Returns:
        The table, and the numbers of the rows in the order of their sequences, None where they
        are in that order already.

    Raises:
        InputError: If a coordinate is there and another one it needs is not.
    """
    n = array.sizes[TOKEN]
    present = [name for name in COORDINATES if name in array.coords]
    if not present:
        return TokenTable.unlabelled(n), None
    if len(present) < len(COORDINATES):
        raise InputError(
            f"the rows have the token coordinates {present} but populations need all of"
            f" {list(COORDINATES)}; attach the others, or drop these to measure all rows alike"
        )
    known = array.attrs.get(CAUSAL) if causal is None else causal
    if known is None:
        raise InputError(
            "whether the model is causal is not known, so that first tokens cannot be told from"
            f" content; pass causal=True or causal=False, or set the attribute {CAUSAL!r}"
        )
    special, position, sequence = (_token_values(array, name) for name in COORDINATES)
    token_id = _token_values(array, TOKEN_ID) if TOKEN_ID in array.coords else None
    order = None
    if (np.diff(sequence) < 0).any():
        order = np.argsort(sequence, kind="stable")
        special, position, sequence = special[order], position[order], sequence[order]
        token_id = None if token_id is None else token_id[order]
    table = TokenTable.from_coordinates(
        special=special.astype(bool),
        position=position,
        sequence=sequence,
        causal=bool(known),
        token_id=token_id,
    )
    return table, order


def _token_values(array: xr.DataArray, name: str) -> npt.NDArray[np.int64]:
    coordinate = array.coords[name]
    if coordinate.dims != (TOKEN,):
        raise InputError(
            f"the coordinate {name!r} must have the dimension {TOKEN!r}, got {coordinate.dims}"
        )
    values: npt.NDArray[np.int64] = coordinate.values.astype(np.int64)
    return values
