"""Memory of the pass over a layer: a matter of its width, not of its rows."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from analysis.onepass import pass_over
from analysis.populations import POPULATIONS, TokenTable
from analysis.request import Request

WIDTH = 256
LENGTH = 64


class DrawnRows:
    """Rows that exist only while they are read."""

    def __init__(self, n: int) -> None:
        self.n = n

    def blocks(self, *, rows: int) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        rng = np.random.default_rng(0)
        for start in range(0, self.n, rows):
            count = min(rows, self.n - start)
            yield start, rng.standard_normal((count, WIDTH), dtype=np.float32)

    def rows(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        raise NotImplementedError


def peak_of(n: int) -> int:
    position = np.arange(n) % LENGTH
    table = TokenTable.from_coordinates(
        special=np.zeros(n, bool),
        position=position,
        sequence=np.arange(n) // LENGTH,
        causal=True,
    )
    tracemalloc.start()
    pass_over(DrawnRows(n), table, Request(tuple(POPULATIONS.values())))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_eight_times_the_rows_need_no_more_memory() -> None:
    peak_of(128)
    # Threads that other tests left behind can only add to what is traced. The fewer rows are enough
    # to fill every buffer: eight blocks, with more first tokens in a group than are kept as rows.
    little, much = (min(peak_of(n) for _ in range(2)) for n in (1 << 15, 1 << 18))
    # Of every row its norm, twice, and its part are kept: 17 bytes of the 1,024 that it has.
    assert much - 17 * (1 << 18) < 1.1 * little
