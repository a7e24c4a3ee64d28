"""Exact ranks: how many rows are nearer to a token than some other token is."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.blas import one_blas_thread
from analysis.centred_rows import CentredRows, centre_rows
from analysis.errors import InputError
from analysis.exact_kernels import count_nearer, rank_candidates, squares_within
from analysis.neighbors import thread_pool

Rows = npt.NDArray[np.floating]
Integers = npt.NDArray[np.integer]
Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

_TIE: Final = 1e-12
"""Relative difference of squared distances up to which two rows are equally near."""


def neighbor_ranks(
    rows: Rows,
    targets: Integers,
    *,
    groups: Integers | None = None,
    threads: int = 1,
    block_rows: int = 1024,
) -> Counts:
    """Rank some tokens by their distance from each token, 1 for its nearest neighbour.

    Products in float32 decide where the bound of `CentredRows` lets them, exact differences
    elsewhere. Rows equally near share the smaller rank.

    Args:
        rows: Rows (token, dim), all of which count.
        targets: Tokens to rank from the point of view of each token (token, target).
        groups: Group of each row (token), of which only others count.
        threads: Threads that share the work, each with one BLAS thread.
        block_rows: Rows of one block of the products; changes time and memory, not the result.

    Returns:
        Ranks from 1 (token, target).

    Raises:
        NonFiniteRowsError: If a value is NaN or infinite.
        InputError: If the targets are not of these rows.
    """
    n = len(rows)
    if len(targets) != n or not ((targets >= 0) & (targets < n)).all():
        raise InputError(
            f"targets must name tokens below {n} for each of {n} rows; got shape {targets.shape}"
        )
    rows = np.ascontiguousarray(rows, np.float64 if rows.dtype == np.float64 else np.float32)
    labels = np.arange(n) if groups is None else np.asarray(groups, np.int64)
    centred = centre_rows(rows, np.arange(n), block_rows)
    distances, order = _from_near_to_far(rows, targets)
    counts = np.zeros(targets.shape, np.int64)
    blocks = [slice(start, min(n, start + block_rows)) for start in range(0, n, block_rows)]

    def count(left: slice) -> None:
        limits = _limits(centred, left, distances[left])
        norms = centred.norms.astype(np.float32)
        for right in blocks:
            count_nearer(
                centred.block(left) @ centred.block(right).T,
                (norms[left], norms[right]),
                (labels[left], labels[right]),
                (left.start, right.start),
                limits,
                rows,
                counts[left],
            )

    with one_blas_thread(), thread_pool(threads) as pool:
        for _ in (map if pool is None else pool.map)(count, blocks):
            pass
    ranks = np.empty_like(counts)
    np.put_along_axis(ranks, order, counts + 1, axis=1)
    return ranks


def _from_near_to_far(rows: Rows, targets: Integers) -> tuple[Floats, Counts]:
    """Return the distances of targets in rising order, and the places they came from."""
    distances = np.empty(targets.shape)
    for place in range(targets.shape[1]):
        found = np.empty((len(rows), 1), np.int64)
        own = targets[:, place : place + 1].astype(np.int32)
        tokens = np.arange(len(rows))
        one = np.empty((len(rows), 1))
        near = (np.ones(len(rows), np.int64), own, np.zeros(own.shape, np.float32))
        reading = (1.0, np.zeros(len(rows)), 0.0, 0.0)
        rank_candidates(rows, tokens, tokens, near, reading, one, found)
        distances[:, place] = one[:, 0]
    order = np.argsort(distances, axis=1, kind="stable")
    return np.take_along_axis(distances, order, axis=1), order


def _limits(
    centred: CentredRows, tokens: slice, distances: Floats
) -> tuple[Floats, Floats, Floats]:
    squares, slack = squares_within(centred.reading(tokens), distances)
    return distances**2 * (1 - _TIE), squares + slack, squares - slack
