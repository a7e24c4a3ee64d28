"""The search behind `analysis.neighbors`: products, candidates, certificate, refinement."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from analysis.candidate_kernels import UNSEEN, fill_heaps, scan_tile
from analysis.centred_rows import CentredRows
from analysis.exact_kernels import rank_candidates, squares_within
from analysis.neighbor_refinement import refine
from analysis.reduced_rows import ReducedRows, Space

Task = TypeVar("Task")

_Singles: TypeAlias = npt.NDArray[np.float32]
_Tokens: TypeAlias = npt.NDArray[np.int32]

_STRIP_BLOCKS: Final = 8
_MANY: Final = 32
"""Candidates from which selecting them in a first tile is faster than offering them one by one."""

_REFINE_PRODUCTS: Final = 1 << 21


class Search:
    """One search over some rows: candidates, certificate and refinement."""

    def __init__(
        self,
        centred: CentredRows,
        reduced: ReducedRows | None,
        groups: npt.NDArray[np.int64],
        pool: ThreadPoolExecutor | None,
        block_rows: int,
    ) -> None:
        """Prepare a search.

        Args:
            centred: The rows.
            reduced: The same by fewer numbers, to multiply first; None to multiply the rows.
            groups: Group of each token, within which no neighbours are sought (token).
            pool: Threads that share the work; without, the calling one does it all.
            block_rows: Rows of one block of the products.
        """
        self._centred = centred
        self._groups = groups
        self._pool = pool
        self._block_rows = block_rows
        self._space: Space = centred if reduced is None else reduced
        self._norms = self._space.norms.astype(np.float32)

    def candidates(self, count: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
        """Return the nearest tokens by float32 products.

        Args:
            count: Candidates of each token; no token may have fewer to choose from.

        Returns:
            Squared distances of the candidates, the largest first (token, candidate), and which
            they are.
        """
        n = len(self._centred)
        values = np.full((n, count), UNSEEN, np.float32)
        indices = np.full((n, count), -1, np.int32)
        blocks = self._blocks(self._block_rows)
        locks = [threading.Lock() for _ in blocks]

        def heaps(block: slice) -> tuple[_Singles, npt.NDArray[np.int64], _Singles, _Tokens]:
            return self._norms[block], self._groups[block], values[block], indices[block]

        def multiplied(left: int, right: int, buffer: _Singles) -> _Singles:
            rows, columns = self._space.block(blocks[left]), self._space.block(blocks[right])
            tile = buffer[: len(rows) * len(columns)].reshape(len(rows), len(columns))
            return np.matmul(rows, columns.T, out=tile)

        def own(number: int) -> None:
            tile = multiplied(number, number, np.empty(self._block_rows**2, np.float32))
            block = blocks[number]
            if count < _MANY:
                scan_tile(tile, heaps(block), heaps(block), block.start, block.start)
            else:
                fill_heaps(tile, heaps(block), block.start)

        def strip(task: tuple[int, list[int]]) -> None:
            left, partners = task
            buffer = np.empty(self._block_rows**2, np.float32)
            for right in partners:
                tile = multiplied(left, right, buffer)
                with ExitStack() as held:
                    for block in sorted({left, right}):
                        held.enter_context(locks[block])
                    scan_tile(
                        tile,
                        heaps(blocks[left]),
                        heaps(blocks[right]),
                        blocks[left].start,
                        blocks[right].start,
                    )

        self._share(own, range(len(blocks)))
        self._share(strip, _strips(len(blocks)))
        return values, indices

    def rank(
        self, values: _Singles, candidates: _Tokens, k: int
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Return the k nearest of the candidates by exact differences.

        Args:
            values: Squared distances of the candidates by products (token, candidate).
            candidates: Candidates of every token (token, candidate).
            k: Neighbours wanted, at most as many.

        Returns:
            Distances and tokens (token, neighbor), nearest first.
        """
        n = len(self._centred)
        distances = np.empty((n, k))
        indices = np.empty((n, k), np.int64)
        tokens = np.arange(n)
        counts = np.full(n, candidates.shape[1])

        def block(part: slice) -> None:
            rank_candidates(
                self._centred.rows,
                self._centred.kept,
                tokens[part],
                (counts[part], candidates[part], values[part]),
                self._space.reading(part),
                distances[part],
                indices[part],
            )

        self._share(block, self._blocks(self._block_rows))
        return distances, indices

    def certified(
        self, furthest: _Singles, radii: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.bool_]:
        """Tell which tokens cannot have a neighbour outside their candidates.

        Args:
            furthest: Largest squared distance among the candidates, by products (token).
            radii: Exact distance of the last neighbour (token).
        """
        squared, slack = squares_within(self._space.reading(slice(None)), radii)
        certain: npt.NDArray[np.bool_] = furthest - slack > squared
        return certain

    def refine(
        self,
        tokens: npt.NDArray[np.int64],
        distances: npt.NDArray[np.float64],
        indices: npt.NDArray[np.int64],
    ) -> None:
        """Search again for some tokens, among every row that the bound does not exclude.

        Args:
            tokens: The tokens in doubt.
            distances: Distances so far (token, neighbor), made exact in place.
            indices: Tokens they belong to (token, neighbor), made exact in place.
        """
        size = max(1, _REFINE_PRODUCTS // len(self._centred))
        spaces = [self._space] if self._space is self._centred else [self._space, self._centred]
        blocks = self._blocks(self._block_rows)

        def search(part: npt.NDArray[np.int64]) -> None:
            refine(part, spaces, self._centred, self._groups, blocks, (distances, indices))

        self._share(search, [tokens[i : i + size] for i in range(0, len(tokens), size)])

    def _blocks(self, rows: int) -> list[slice]:
        n = len(self._centred)
        return [slice(start, min(n, start + rows)) for start in range(0, n, rows)]

    def _share(self, work: Callable[[Task], None], tasks: Iterable[Task]) -> None:
        run = map if self._pool is None else self._pool.map
        for _ in run(work, tasks):
            pass


def _strips(blocks: int) -> list[tuple[int, list[int]]]:
    """Cut the pairs of different blocks, each once, into strips that share their first block.

    Pairs go round the circle, block a with a + 1, a + 2, ..., a + blocks / 2, so that all blocks
    have as many; strips that follow one another write to different blocks.
    """
    furthest = blocks // 2
    strips = []
    for start in range(1, furthest + 1, _STRIP_BLOCKS):
        for first in range(blocks):
            partners = [
                (first + offset) % blocks
                for offset in range(start, min(start + _STRIP_BLOCKS, furthest + 1))
                if not (2 * offset == blocks and first >= furthest)
            ]
            if partners:
                strips.append((first, partners))
    return strips
