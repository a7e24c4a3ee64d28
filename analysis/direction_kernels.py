"""Compiled inner loops that lay rows along a few directions, and back.

Each reads a block of rows once and releases the interpreter lock.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from analysis.neighbor_kernels import compiled
from analysis.row_kernels import Floats, Indices, Rows

_STRIP_ROWS: Final = 16
"""Fours of rows whose products are summed in their own precision before float64 takes over."""

_ROWS_AT_ONCE: Final = 4
"""Rows multiplied before what is in memory is added to."""


@compiled("reassoc", "contract")
def multiply_rows(
    rows: Rows,
    selected: Indices,
    factors: Rows,
    shift: Rows,
    directions: Rows,
    along: Rows,
    product: Floats,
) -> None:
    """Multiply the selected rows, scaled and about a shift, by a few directions and back.

    Args:
        rows: Rows (token, dim).
        selected: Numbers of the rows (row).
        factors: What each row (token) is multiplied by.
        shift: What is subtracted afterwards (dim).
        directions: An even number of directions (component, dim), whose precision is computed in.
        along: Receives how far each row lies along each of them (row, component).
        product: Sums of rows times that (component, dim), added to.
    """
    count, width = directions.shape
    zero = directions.dtype.type(0)
    centred = np.zeros((_ROWS_AT_ONCE, width), directions.dtype)
    weights = np.zeros((_ROWS_AT_ONCE, count), directions.dtype)
    strip = np.zeros((count, width), directions.dtype)
    for first in range(0, selected.shape[0], _ROWS_AT_ONCE):
        here = min(_ROWS_AT_ONCE, selected.shape[0] - first)
        for s in range(_ROWS_AT_ONCE):
            if s < here:
                row, factor = rows[selected[first + s]], factors[selected[first + s]]
                for t in range(width):
                    centred[s, t] = row[t] * factor - shift[t]
            else:
                centred[s] = zero
        for c in range(0, count, 2):
            a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zero
            for t in range(width):
                left, right = directions[c, t], directions[c + 1, t]
                w, x, y, z = centred[0, t], centred[1, t], centred[2, t], centred[3, t]
                a0 += w * left
                a1 += x * left
                a2 += y * left
                a3 += z * left
                b0 += w * right
                b1 += x * right
                b2 += y * right
                b3 += z * right
            weights[0, c], weights[1, c], weights[2, c], weights[3, c] = a0, a1, a2, a3
            weights[0, c + 1], weights[1, c + 1] = b0, b1
            weights[2, c + 1], weights[3, c + 1] = b2, b3
        for c in range(0, count, 2):
            a0, a1, a2, a3 = weights[0, c], weights[1, c], weights[2, c], weights[3, c]
            b0, b1 = weights[0, c + 1], weights[1, c + 1]
            b2, b3 = weights[2, c + 1], weights[3, c + 1]
            for t in range(width):
                w, x, y, z = centred[0, t], centred[1, t], centred[2, t], centred[3, t]
                strip[c, t] += (a0 * w + a1 * x) + (a2 * y + a3 * z)
                strip[c + 1, t] += (b0 * w + b1 * x) + (b2 * y + b3 * z)
        along[first : first + here] = weights[:here]
        if (first // _ROWS_AT_ONCE) % _STRIP_ROWS == _STRIP_ROWS - 1:
            product += strip
            strip[:] = zero
    product += strip


@compiled("reassoc", "contract")
def project_rows(
    rows: Rows,
    selected: Indices,
    factors: Floats,
    mean: Floats,
    direction: Floats,
    lengths: Floats,
    squares: Floats,
) -> None:
    """Write how far the selected rows, scaled, lie from their mean.

    Args:
        rows: Rows (token, dim).
        selected: Numbers of the rows (row).
        factors: What each row (token) is multiplied by.
        mean: Their mean (dim).
        direction: A direction (dim).
        lengths: Receives the distances along it (row).
        squares: Receives the squared distances (row).
    """
    for s in range(selected.shape[0]):
        row, factor = rows[selected[s]], factors[selected[s]]
        length = square = 0.0
        for t in range(rows.shape[1]):
            value = np.float64(row[t]) * factor - mean[t]
            length += value * direction[t]
            square += value * value
        lengths[s], squares[s] = length, square
