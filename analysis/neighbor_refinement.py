"""The second search, for tokens whose candidates the bound does not certify."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.candidate_kernels import collect_near
from analysis.centred_rows import CentredRows
from analysis.exact_kernels import rank_candidates, squares_within
from analysis.reduced_rows import Space

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_CROWD: Final = 16
"""Where more than one token in so many is near by fewer numbers, whole products tell them apart."""


def refine(
    tokens: Integers,
    spaces: Sequence[Space],
    centred: CentredRows,
    groups: Integers,
    blocks: Sequence[slice],
    found: tuple[Floats, Integers],
) -> None:
    """Find the neighbours of some tokens among every row that the bound does not exclude.

    Args:
        tokens: The tokens in doubt, rising.
        spaces: What to multiply: fewer numbers first, whole rows last.
        centred: The rows.
        groups: Group of each token, within which no neighbours are sought (token).
        blocks: The tokens, in turn.
        found: Distances so far and tokens they belong to (token, neighbor), made exact in place.
    """
    distances, indices = found
    n, k = len(centred), distances.shape[1]
    for space in spaces:
        room = n if space is spaces[-1] else n // _CROWD
        counts, near, values = _near(space, tokens, distances[tokens, -1], groups, blocks, room)
        few = counts <= room
        chosen = tokens[few]
        if len(chosen):
            widest = counts[few].max()
            ranked = np.empty((len(chosen), k)), np.empty((len(chosen), k), np.int64)
            rank_candidates(
                centred.rows,
                centred.kept,
                chosen,
                (counts[few], near[few, :widest], values[few, :widest]),
                space.reading(chosen),
                *ranked,
            )
            distances[chosen], indices[chosen] = ranked
        tokens = tokens[~few]
        if len(tokens) == 0:
            return


def _near(
    space: Space,
    tokens: Integers,
    radii: Floats,
    groups: Integers,
    blocks: Sequence[slice],
    room: int,
) -> tuple[Integers, npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Return which tokens may lie within some radii of some others.

    Returns:
        How many do (token), which, and their squared distances by products (token, candidate).
        Of tokens with more than there is room for, neither is whole.
    """
    squared, slack = squares_within(space.reading(tokens), radii)
    limits = (squared + slack).astype(np.float32) * np.float32(1 + 1e-6)
    norms = space.norms.astype(np.float32)
    rows = space.block(tokens)
    counts = np.zeros(len(tokens), np.int64)
    near = np.empty((len(tokens), room), np.int32)
    values = np.empty(near.shape, np.float32)
    tile = np.empty(len(tokens) * max(block.stop - block.start for block in blocks), np.float32)
    for block in blocks:
        columns = space.block(block)
        products = tile[: len(rows) * len(columns)].reshape(len(rows), len(columns))
        np.matmul(rows, columns.T, out=products)
        left, right = (norms[tokens], groups[tokens]), (norms[block], groups[block])
        collect_near(products, left, right, block.start, limits, (counts, near, values))
    return counts, near, values
