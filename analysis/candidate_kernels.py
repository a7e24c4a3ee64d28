"""Compiled inner loops that look through tiles of products for candidates.

They assume that no value is NaN or infinite.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from analysis.neighbor_kernels import Floats, Integers, compiled

UNSEEN: Final = np.float32(1e30)
"""Squared distance of a candidate slot not filled yet; finite, since the scan assumes no inf."""

_STRIP: Final = 64


@compiled("fast")
def replace_worst(
    values: Floats, indices: Integers, token: int, hole: int, value: float, index: int
) -> None:
    """Replace an entry of a max-heap by one no larger than its parent, and restore the heap.

    Args:
        values: Heaps (token, candidate) of squared distances, the largest first.
        indices: Row number of each candidate (token, candidate).
        token: The heap that is meant.
        hole: The entry; 0 is the largest.
        value: Squared distance that replaces it.
        index: Row number that goes with it.
    """
    size = values.shape[1]
    child = 2 * hole + 1
    while child < size:
        if child + 1 < size and values[token, child + 1] > values[token, child]:
            child += 1
        if values[token, child] <= value:
            break
        values[token, hole] = values[token, child]
        indices[token, hole] = indices[token, child]
        hole = child
        child = 2 * hole + 1
    values[token, hole] = value
    indices[token, hole] = index


@compiled("fast")
def select_smallest(values: Floats, numbers: Integers, count: int, wanted: int) -> None:
    """Move the smallest of some values to the front, the largest of these last of them.

    Args:
        values: Values (candidate), of which the first `count` are meant.
        numbers: A number that goes with each (candidate).
        count: How many there are.
        wanted: How many move to the front.
    """
    first = 0
    last = count - 1
    while first < last:
        pivot = values[(first + last) // 2]
        low = first
        high = last
        while low <= high:
            while values[low] < pivot:
                low += 1
            while values[high] > pivot:
                high -= 1
            if low <= high:
                value, number = values[low], numbers[low]
                values[low], numbers[low] = values[high], numbers[high]
                values[high], numbers[high] = value, number
                low += 1
                high -= 1
        if wanted - 1 <= high:
            last = high
        elif wanted - 1 >= low:
            first = low
        else:
            break


@compiled("fast")
def fill_heaps(
    products: Floats, own: tuple[Floats, Integers, Floats, Integers], start: int
) -> None:
    """Fill the candidate heaps of some rows from the tile of these rows with themselves.

    The same as to offer every pair to empty heaps, at once: faster where many are wanted.

    Args:
        products: Inner products (token, token).
        own: Squared norms (token), groups (token), and the heaps that are filled, squared
            distances and row numbers (token, candidate). Pairs of equal groups are skipped.
        start: Row number of the first row.
    """
    norms, groups, values, indices = own
    rows = products.shape[0]
    wanted = values.shape[1]
    squares = np.empty(rows, np.float32)
    numbers = np.empty(rows, np.int32)
    for i in range(rows):
        count = 0
        for j in range(rows):
            squares[count] = norms[i] + norms[j] - np.float32(2.0) * products[i, j]
            numbers[count] = j + start
            if groups[i] != groups[j]:
                count += 1
        if count > wanted:
            select_smallest(squares, numbers, count, wanted)
            count = wanted
        for place in range(count):
            values[i, place] = squares[place]
            indices[i, place] = numbers[place]
        for hole in range(wanted // 2 - 1, -1, -1):
            replace_worst(values, indices, i, hole, values[i, hole], indices[i, hole])


@compiled("fast")
def scan_tile(
    products: Floats,
    left: tuple[Floats, Integers, Floats, Integers],
    right: tuple[Floats, Integers, Floats, Integers],
    left_start: int,
    right_start: int,
) -> None:
    """Offer every pair of a tile to the candidate heaps of its row and of its column.

    The squared distance |x|² + |y|² - 2x·y is below the threshold of a heap exactly where x·y
    less a constant of the column exceeds a constant of the row, and whole strips fail that at
    once.

    Args:
        products: Inner products (left token, right token).
        left: Of the rows of the tile: squared norms (token), groups (token), and the heaps
            updated in place, squared distances and row numbers (token, candidate). Pairs of
            equal groups are skipped.
        right: The same of its columns.
        left_start: Row number of the first row of the tile.
        right_start: Row number of its first column; where equal, only the left is updated.
    """
    left_norms, left_groups, left_values, left_indices = left
    right_norms, right_groups, right_values, right_indices = right
    rows, columns = products.shape
    half = np.float32(0.5)
    two = np.float32(2.0)
    both = left_start != right_start
    own = np.empty(columns, np.float32)
    other = np.empty(columns, np.float32)
    for j in range(columns):
        own[j] = half * right_norms[j]
        other[j] = half * (right_norms[j] - right_values[j, 0]) if both else UNSEEN
    for i in range(rows):
        row_limit = half * (left_norms[i] - left_values[i, 0])
        column_limit = half * left_norms[i]
        for start in range(0, columns, _STRIP):
            stop = min(columns, start + _STRIP)
            row_hits = np.int32(0)
            column_hits = np.int32(0)
            for j in range(start, stop):
                row_hits += np.int32(products[i, j] - own[j] > row_limit)
                column_hits += np.int32(products[i, j] - other[j] > column_limit)
            if row_hits:
                for j in range(start, stop):
                    excess = products[i, j] - own[j]
                    if excess > row_limit and left_groups[i] != right_groups[j]:
                        value = left_norms[i] - two * excess
                        replace_worst(left_values, left_indices, i, 0, value, j + right_start)
                        row_limit = half * (left_norms[i] - left_values[i, 0])
            if column_hits:
                for j in range(start, stop):
                    if (
                        products[i, j] - other[j] > column_limit
                        and left_groups[i] != right_groups[j]
                    ):
                        value = left_norms[i] + two * (own[j] - products[i, j])
                        replace_worst(right_values, right_indices, j, 0, value, i + left_start)
                        other[j] = half * (right_norms[j] - right_values[j, 0])


@compiled("fast")
def collect_near(
    products: Floats,
    left: tuple[Floats, Integers],
    right: tuple[Floats, Integers],
    right_start: int,
    limits: Floats,
    near: tuple[Integers, Integers, Floats],
) -> None:
    """Append the columns of a tile that are near to its rows, while there is room for them.

    Args:
        products: Inner products (left token, right token).
        left: Squared norms and groups of its rows (token); pairs of equal groups are skipped.
        right: The same of its columns.
        right_start: Row number of the first column.
        limits: Squared distance up to which a column is near (left token).
        near: How many there are (left token), their row numbers and squared distances
            (left token, candidate), appended to; of a row with more than there is room for, the
            number exceeds the room.
    """
    counts, indices, values = near
    room = indices.shape[1]
    rows, columns = products.shape
    half = np.float32(0.5)
    two = np.float32(2.0)
    own = np.empty(columns, np.float32)
    for j in range(columns):
        own[j] = half * right[0][j]
    for i in range(rows):
        row_limit = half * (left[0][i] - limits[i])
        for start in range(0, columns, _STRIP):
            if counts[i] > room:
                break
            stop = min(columns, start + _STRIP)
            hits = np.int32(0)
            for j in range(start, stop):
                hits += np.int32(products[i, j] - own[j] >= row_limit)
            if hits:
                for j in range(start, stop):
                    excess = products[i, j] - own[j]
                    if excess >= row_limit and left[1][i] != right[1][j]:
                        if counts[i] < room:
                            indices[i, counts[i]] = j + right_start
                            values[i, counts[i]] = left[0][i] - two * excess
                        counts[i] += 1
