"""Exact nearest neighbours of the rows of one layer, in bounded memory.

Candidates come from blockwise float32 products of centred rows, each pair of blocks once, or,
where rows mostly vary along a few directions, of the few numbers along these, whose distances are
never larger; candidates are ranked by exact differences in float64; a bound on the rounding of
the products certifies that no row outside them can be nearer, and the rows that it cannot certify
are searched again among every row that the bound does not exclude. The result therefore depends
neither on the directions, nor on the blocks, nor on the number of threads, nor on the BLAS.
Equal rows are dropped before the search: a distance of zero says nothing about dimension, and
biases what the others say.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.blas import one_blas_thread
from analysis.centred_rows import Rows, centre_rows
from analysis.errors import InputError, TooFewRowsError
from analysis.neighbor_kernels import hash_rows, mark_first
from analysis.neighbor_search import Search
from analysis.reduced_rows import reduce_rows
from analysis.reduction import choose_reduction

Integers = npt.NDArray[np.integer]

_SPARE_CANDIDATES: Final = 6


@dataclass(frozen=True)
class Neighbors:
    """The nearest neighbours of every distinct row.

    Attributes:
        distances: Euclidean distances (token, neighbor) in rising order.
        indices: Tokens they belong to (token, neighbor), numbered among the distinct rows.
        kept: Row number of every distinct row (token), in rising order.
        n_duplicates: Rows dropped because they equal an earlier one.
        n_refined: Distinct rows that the products could not certify and that were searched again.
    """

    distances: npt.NDArray[np.float64]
    indices: npt.NDArray[np.int64]
    kept: npt.NDArray[np.int64]
    n_duplicates: int
    n_refined: int


def nearest_neighbors(
    rows: npt.NDArray[np.floating],
    k: int,
    *,
    threads: int = 1,
    groups: Integers | None = None,
    minimum: int | None = None,
    block_rows: int = 768,
) -> Neighbors:
    """Find the k nearest neighbours of every distinct row, exactly.

    Args:
        rows: Rows (token, dim); float64 is searched as it is, narrower floats as float32.
        k: Neighbours wanted of each row, at least 1.
        threads: Threads that share the work, each with one BLAS thread.
        groups: Group of each row (token), such as its sequence: neighbours are then sought in
            other groups only. A row that occurs in several belongs to the first.
        minimum: Neighbours to be content with where the rows do not allow k; k by default.
        block_rows: Rows of one block of the products; changes time and memory, not the result.

    Returns:
        Distances and indices; of rows at the same distance, those of smaller index.

    Raises:
        TooFewRowsError: If some row has too few distinct rows to choose from.
        NonFiniteRowsError: If a value is NaN or infinite.
        InputError: If an argument has the wrong shape, dtype or range.
    """
    rows = _checked(rows, k, groups)
    kept = distinct_rows(rows)
    labels = _labels(kept, groups)
    choices = len(kept) - np.bincount(labels, minlength=1)[labels]
    fewest = int(choices.min(initial=len(rows)))
    required = k if minimum is None else minimum
    if fewest < required:
        raise TooFewRowsError(
            f"{required} neighbours are needed, but some row has only {fewest} to choose from "
            f"({len(rows)} rows, {len(kept)} of them distinct"
            + ("" if groups is None else ", the row's own group left out")
            + "): sample more rows or ask for fewer neighbours"
        )
    k = min(k, fewest)
    n_duplicates = len(rows) - len(kept)
    if k == 0:
        none = (len(kept), 0)
        return Neighbors(np.empty(none), np.empty(none, np.int64), kept, n_duplicates, 0)
    count = k + _SPARE_CANDIDATES + k // 16
    with one_blas_thread(), thread_pool(threads) as pool:
        centred = centre_rows(rows, kept, block_rows)
        reduction = choose_reduction(centred, labels, k, count)
        reduced = None
        if reduction is not None:
            centred = centred.let_go()
            reduced = reduce_rows(centred, reduction.directions, block_rows)
            count = reduction.candidates
        search = Search(centred, reduced, labels, pool, block_rows)
        values, candidates = search.candidates(min(count, fewest))
        distances, indices = search.rank(values, candidates, k)
        sure = search.certified(values[:, 0], distances[:, -1]) | (choices == values.shape[1])
        doubtful = np.flatnonzero(~sure)
        search.refine(doubtful, distances, indices)
    return Neighbors(distances, indices, kept, n_duplicates, len(doubtful))


def thread_pool(threads: int) -> AbstractContextManager[ThreadPoolExecutor | None]:
    """Return threads to share work, or None where the calling thread does it all."""
    return ThreadPoolExecutor(threads) if threads > 1 else nullcontext()


def distinct_rows(rows: Rows) -> npt.NDArray[np.int64]:
    """Return the number of the first occurrence of every distinct row, in rising order.

    Args:
        rows: Rows (token, dim), C-contiguous; 0.0 and -0.0 are equal.
    """
    if rows.shape[1] == 0:
        return np.arange(min(1, len(rows)))
    size = rows.dtype.itemsize
    hashes = np.empty(len(rows), np.uint64)
    hash_rows(rows.view(f"u{size}"), np.uint64(1 << (8 * size - 1)), hashes)
    order = np.argsort(hashes, kind="stable")
    first = np.ones(len(rows), np.bool_)
    mark_first(rows, order, hashes, first)
    return np.flatnonzero(first)


def _labels(kept: npt.NDArray[np.int64], groups: Integers | None) -> npt.NDArray[np.int64]:
    if groups is None:
        return np.arange(len(kept))
    return np.unique(groups[kept], return_inverse=True)[1].astype(np.int64)


def _checked(rows: npt.NDArray[np.floating], k: int, groups: Integers | None) -> Rows:
    if rows.ndim != 2 or not np.issubdtype(rows.dtype, np.floating):
        raise InputError(
            f"neighbours are sought among floating-point rows (token, dim); got {rows.dtype} "
            f"of shape {rows.shape}"
        )
    if k < 1:
        raise InputError(f"the number of neighbours must be at least 1, got {k}")
    if groups is not None and groups.shape != rows.shape[:1]:
        raise InputError(
            f"groups must hold one number for each of {len(rows)} rows, got shape {groups.shape}"
        )
    if rows.dtype == np.float64:
        return np.ascontiguousarray(rows)
    return np.ascontiguousarray(rows, dtype=np.float32)
