"""Compiled inner loops that decide by exact differences what products leave open."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np

from analysis.candidate_kernels import select_smallest
from analysis.neighbor_kernels import Floats, Integers, compiled

Reading: TypeAlias = tuple[float, Floats, float, float]
"""Of squared distances by products: the factor that distances were multiplied by, the norm of
each row (token), and the relative and the least error that `slack` takes."""

_AT_ONCE: Final = 4
"""Rows whose distances are summed side by side: that many reads of memory are under way."""


def slack(norms: Floats, radii: Floats, relative: float, least: float) -> Floats:
    """Return how far squared distances by products may be from exact ones up to some radii.

    Args:
        norms: Norm of each row (token, ...).
        radii: Radii about it (token, ...); what lies within has no norm beyond the sum of both.
        relative: Largest error in units of the squared sum of two norms.
        least: What underflow may add.
    """
    error: Floats = relative * (2 * norms + radii) ** 2 + least
    return error


_slack = compiled()(slack)


def squares_within(reading: Reading, radii: Floats) -> tuple[Floats, Floats]:
    """Return squared radii as products give them, and how far these may be from any such square.

    Args:
        reading: How products are to be read, of some rows.
        radii: Distances from each of them (token, ...).
    """
    scale, norms, relative, least = reading
    scaled = radii * scale
    norms = norms.reshape(-1, *(1,) * (radii.ndim - 1))
    return scaled**2, slack(norms, scaled, relative, least)


@compiled("reassoc", "contract")
def _square_distances(
    rows: Floats, number: int, numbers: Integers, count: int, squares: Floats
) -> None:
    """Write the squared distances from one row to up to four others, summed in float64.

    The one place that computes final distances: whatever found the candidates, the same pair
    gives the same bits, in either order.
    """
    row = rows[number]
    last = count - 1
    a = rows[numbers[0]]
    b = rows[numbers[min(1, last)]]
    c = rows[numbers[min(2, last)]]
    d = rows[numbers[min(3, last)]]
    total_a, total_b, total_c, total_d = 0.0, 0.0, 0.0, 0.0
    for t in range(row.shape[0]):
        value = np.float64(row[t])
        to_a = value - np.float64(a[t])
        to_b = value - np.float64(b[t])
        to_c = value - np.float64(c[t])
        to_d = value - np.float64(d[t])
        total_a += to_a * to_a
        total_b += to_b * to_b
        total_c += to_c * to_c
        total_d += to_d * to_d
    squares[0] = total_a
    squares[1] = total_b
    squares[2] = total_c
    squares[3] = total_d


@compiled()
def _settle_tie(squares: Floats, tokens: Integers, order: Integers, place: int) -> None:
    """Move a candidate before those at the same distance that have larger numbers."""
    own = order[place]
    while place > 0:
        other = order[place - 1]
        if squares[other] != squares[own] or tokens[other] < tokens[own]:
            break
        order[place] = other
        place -= 1
    order[place] = own


@compiled()
def rank_candidates(
    rows: Floats,
    kept: Integers,
    queries: Integers,
    near: tuple[Integers, Integers, Floats],
    reading: Reading,
    distances: Floats,
    indices: Integers,
) -> None:
    """Select the nearest candidates by exact differences in float64, ties to the smaller number.

    Candidates are measured in the order of their squared distances by products, until none that
    is left can be among the nearest.

    Args:
        rows: Rows as given (row, dim).
        kept: Row number of each token (token).
        queries: Tokens to rank for (query).
        near: Candidates: how many, as many as neighbours at least (query); distinct tokens, and
            their squared distances by products (query, candidate).
        reading: How these distances are to be read, of the queries.
        distances: Receives the distances in rising order (query, neighbor).
        indices: Receives the tokens they belong to (query, neighbor).
    """
    counts, candidates, values = near
    scale, norms, relative, least = reading
    k = distances.shape[1]
    squares = np.empty(candidates.shape[1] + _AT_ONCE)
    scratch = np.empty_like(squares)
    numbered = np.zeros(len(squares), np.int32)
    numbers = np.empty(_AT_ONCE, np.int64)
    for q in range(queries.shape[0]):
        count = counts[q]
        order = np.argsort(values[q, :count])
        tokens = candidates[q][order]
        limit = np.inf
        measured = 0
        due = k
        while measured < count and values[q, order[measured]] <= limit:
            several = min(_AT_ONCE, count - measured)
            for place in range(several):
                numbers[place] = kept[tokens[measured + place]]
            _square_distances(rows, kept[queries[q]], numbers, several, squares[measured:])
            measured += several
            if measured >= due and measured < count:
                for place in range(measured):
                    scratch[place] = squares[place]
                select_smallest(scratch, numbered, measured, k)
                radius = scale * np.sqrt(scratch[k - 1])
                limit = radius * radius + _slack(norms[q], radius, relative, least)
                due = measured + k // _AT_ONCE
        nearest = np.argsort(squares[:measured])
        for place in range(1, measured):
            _settle_tie(squares, tokens, nearest, place)
        for place in range(k):
            distances[q, place] = np.sqrt(squares[nearest[place]])
            indices[q, place] = tokens[nearest[place]]


@compiled("reassoc", "contract")
def count_nearer(
    products: Floats,
    norms: tuple[Floats, Floats],
    groups: tuple[Integers, Integers],
    starts: tuple[int, int],
    limits: tuple[Floats, Floats, Floats],
    rows: Floats,
    counts: Integers,
) -> None:
    """Count the columns of a tile that are nearer to its rows than some limits.

    Pairs that products cannot tell are decided by exact differences.

    Args:
        products: Inner products (left token, right token).
        norms: Squared norms (token) of the rows and of the columns of the tile.
        groups: Their groups (token); pairs of equal groups are skipped.
        starts: Number of the first row and of the first column.
        limits: Of each row, rising (left token, limit): exact squared distances; squared distances
            of products from which no pair is nearer; and below which every pair is.
        rows: Rows as given (token, dim).
        counts: Counts (left token, limit), increased in place.
    """
    exact, never, surely = limits
    last = exact.shape[1] - 1
    for i in range(products.shape[0]):
        for j in range(products.shape[1]):
            square = norms[0][i] + norms[1][j] - np.float32(2.0) * products[i, j]
            if square >= never[i, last] or groups[0][i] == groups[1][j]:
                continue
            measured = -1.0
            for place in range(last, -1, -1):
                if square >= never[i, place]:
                    break
                if square >= surely[i, place]:
                    if measured < 0.0:
                        left = rows[starts[0] + i]
                        right = rows[starts[1] + j]
                        measured = 0.0
                        for t in range(left.shape[0]):
                            difference = np.float64(left[t]) - np.float64(right[t])
                            measured += difference * difference
                    if measured >= exact[i, place]:
                        continue
                counts[i, place] += 1
