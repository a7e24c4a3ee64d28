"""Which sequences of a corpus are kept, drawn at random; a corpus that grows keeps its draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flows.capture.errors import InputError


@dataclass(frozen=True)
class Draw:
    """How many sequences a corpus came to have at one time.

    Attributes:
        texts: Number of texts that it had.
        max_sequences: Number of sequences to have then, None for all.
    """

    texts: int
    max_sequences: int | None


def draw(documents: NDArray[np.integer], draws: Sequence[Draw], seed: int) -> list[int]:
    """Draw sequences, and more of them each time that the corpus grew.

    Args:
        documents: Number of the text that each sequence is of (sequence,).
        draws: What was drawn from, and how much of it, the first first.
        seed: Seed of the draws.

    Returns:
        Indices of sequences: those of one draw in corpus order, after those of the draws before.
    """
    chosen: list[int] = []
    for number, one in enumerate(draws):
        (left,) = np.nonzero(documents < one.texts)
        left = np.setdiff1d(left, chosen)
        wanted = None if one.max_sequences is None else one.max_sequences - len(chosen)
        if wanted is not None and wanted < 1 and number:
            continue
        own_seed = [seed, len(chosen)] if number else seed
        chosen += left[drawn(len(left), wanted, own_seed)].tolist()
    return chosen


def drawn(n: int, wanted: int | None, seed: int | list[int]) -> list[int]:
    """Return which of n sequences are kept, in ascending order; all when `wanted` is None.

    Raises:
        InputError: If none is wanted.
    """
    if wanted is None or wanted >= n:
        return list(range(n))
    if wanted < 1:
        raise InputError(f"a corpus of {wanted} sequences was asked for: expected at least 1")
    chosen = np.random.default_rng(seed).choice(n, size=wanted, replace=False)
    return [int(i) for i in np.sort(chosen)]
