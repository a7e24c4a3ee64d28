"""Sizes |h| of the single values of rows: the largest, and the median of some drawn evenly.

The median of all values would cost a sort of them. Of every row equally many are drawn, spread
over its dimensions from a place that only its number decides, so that neither chunking nor the
division of a layer into stretches changes which. Up to ``DRAWN`` values of a layer all are taken,
and the median is exact; of more, it is off by about 1/√DRAWN = 0.3 % of itself, which its
standard error includes, as every group of sequences has draws of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.row_kernels import measure_rows, of_rank
from analysis.rows import Indices, Rows

Floats = npt.NDArray[np.float64]
Sizes = npt.NDArray[np.floating]

DRAWN: Final = 1 << 17
"""Values drawn of a layer, one of each row where it has more rows."""

_GOLDEN: Final = 2654435769
"""2³²/φ: multiples of it, modulo 2³², are spread evenly however many there are."""


@dataclass
class Magnitudes:
    """Sizes of the values of some rows.

    Attributes:
        largest: The largest of all.
        drawn: Those drawn, in sorted pieces (value).
    """

    largest: float = 0.0
    drawn: list[Sizes] = field(default_factory=list)

    def merge(self, other: Magnitudes) -> None:
        """Add the sizes of the values of other rows."""
        self.largest = max(self.largest, other.largest)
        self.drawn.extend(other.drawn)


def drawn_per_row(n: int, dim: int) -> int:
    """Return how many values are drawn of each of n rows of width ``dim``."""
    return min(dim, max(1, DRAWN // max(n, 1)))


def measure(rows: Rows, start: int, norms: Floats, peaks: Sizes, drawn: Sizes) -> None:
    """Write the norm of every row, the size of its largest value, and those of some others.

    Args:
        rows: Rows (token, dim).
        start: Number of the first row.
        norms: Receives the norms (token); NaN or infinite where the row is not finite.
        peaks: Receives the largest sizes (token) in the precision of the rows.
        drawn: Receives the sizes drawn (token, value), likewise.
    """
    whole = f"u{rows.dtype.itemsize}"
    first = first_drawn(start, start + len(rows), rows.shape[1])
    words, largest, others = (values.view(whole) for values in (rows, peaks, drawn))
    sign = words.dtype.type(np.iinfo(whole).max >> 1)
    measure_rows(rows, words, sign, first, norms, largest, others)


def first_drawn(start: int, stop: int, dim: int) -> Indices:
    """Return the first dimension drawn of consecutive rows (token).

    Args:
        start: Number of the first row.
        stop: One past the number of the last.
        dim: Width of the rows.
    """
    fractions = np.arange(start, stop, dtype=np.int64) * _GOLDEN % (1 << 32)
    first: Indices = fractions * dim >> 32
    return first


def median_of(pieces: Sequence[Sizes]) -> float:
    """Return the median of sizes in sorted pieces (value), NaN of none.

    Their bits, read as integers, rise with them.
    """
    n = sum(map(len, pieces))
    if n == 0:
        return math.nan
    sizes = np.concatenate(pieces)
    bounds = np.cumsum([0, *map(len, pieces)])
    bits = sizes.view(f"i{sizes.dtype.itemsize}")
    middle = [of_rank(bits, bounds, rank) for rank in ((n - 1) // 2, n // 2)]
    found = np.array(middle, bits.dtype).view(sizes.dtype)
    return float(found.astype(np.float64).mean())
