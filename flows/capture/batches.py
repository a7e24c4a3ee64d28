"""Groups sequences into batches of similar length, inside windows of bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flows.capture.masks import NO_TARGET, Masks
from flows.capture.running import text_inputs
from flows.capture.tokens import Tokens


@dataclass(frozen=True)
class Batch:
    """Sequences that are run together.

    Attributes:
        sequences: (sequence,) numbers of the sequences.
        inputs: What the model is shown, by the names of its arguments.
        present: (sequence, position) whether a position is no padding.
        n_tokens: Number of such positions.
        kept: (row,) where the rows that are kept lie once the two dimensions are flattened; None
            where the mean of each sequence is.
        rows: (row,) number of each row within the corpus, in the same order.
    """

    sequences: NDArray[np.int64]
    inputs: Mapping[str, Tensor]
    present: Tensor
    n_tokens: int
    kept: Tensor | None
    rows: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, int]:
        """Sequences, and positions of each, padding included."""
        return self.present.shape[0], self.present.shape[1]


class Waiting(Protocol):
    """Sequences of a window that are still to be run."""

    def __bool__(self) -> bool:
        """Return whether there are any."""

    def batch(self, batch_tokens: int) -> Batch:
        """Return the next ones, of so many positions together at most; they stay until `done`."""

    def done(self, batch: Batch) -> None:
        """Take the sequences of a batch off."""


def make_batch(
    tokens: Tokens,
    sequences: NDArray[np.int64],
    present: NDArray[np.bool_],
    inputs: Mapping[str, Tensor],
) -> Batch:
    """Return the batch of some sequences, with the rows that are kept of them.

    Args:
        tokens: Tokens of the corpus.
        sequences: Numbers of the sequences.
        present: (sequence, position) whether a position is no padding; padding comes last.
        inputs: What the model is shown.
    """
    rows = _ranges(tokens.row_offsets, sequences)
    n_tokens = int(np.count_nonzero(present))
    if tokens.rate > 1:
        present = present[:, : present.shape[1] // tokens.rate]
    places = np.flatnonzero(present)
    if tokens.kept is not None:
        counts = np.diff(tokens.row_offsets)[sequences]
        starts = np.arange(len(sequences)) * present.shape[1] - tokens.place_offsets[sequences]
        places = tokens.kept[rows] + np.repeat(starts, counts)
    return Batch(
        sequences=sequences,
        inputs=inputs,
        present=torch.from_numpy(present),
        n_tokens=n_tokens,
        kept=None if tokens.pooled else torch.from_numpy(places),
        rows=rows,
    )


def windows(tokens: Tokens, n_tokens: int, block_rows: int | None = None) -> Iterator[range]:
    """Yield the ranges of sequences that are sorted by length together.

    Args:
        tokens: Tokens of the corpus.
        n_tokens: Most tokens of a range; a longer sequence is one by itself.
        block_rows: A range ends with the sequence that completes the last block of so many rows
            in it, or, if that is later, the first one; blocks are of no account when None.
    """
    offsets = tokens.offsets
    start = 0
    while start < tokens.n_sequences:
        stop = int(np.searchsorted(offsets, offsets[start] + n_tokens, side="right")) - 1
        stop = max(stop, start + 1)
        if block_rows is not None and stop < tokens.n_sequences:
            stop = _completing(tokens.row_offsets, start, stop, block_rows)
        yield range(start, stop)
        start = stop


def _completing(row_offsets: NDArray[np.int64], start: int, stop: int, block_rows: int) -> int:
    """Return one past the sequence that completes the last block, or else the first one."""
    first, last = int(row_offsets[start]) // block_rows, int(row_offsets[stop]) // block_rows
    end = np.searchsorted(row_offsets, max(first + 1, last) * block_rows)
    return min(int(end), len(row_offsets) - 1)


def padded_positions(
    tokens: Tokens, window_tokens: int, batch_tokens: int, block_rows: int | None = None
) -> int:
    """Return how many positions a model computes for all tokens, padding included.

    Args:
        tokens: Tokens of the corpus.
        window_tokens: Tokens that are sorted by length together.
        batch_tokens: Largest size of a batch, padding included.
        block_rows: As for `windows`.
    """
    total = 0
    for window in windows(tokens, window_tokens, block_rows):
        left = np.sort(tokens.lengths[window.start : window.stop])[::-1]
        while len(left):
            count = min(len(left), max(1, batch_tokens // max(1, int(left[0]))))
            total += count * int(left[0])
            left = left[count:]
    return total


class Pending:
    """Sequences of a window that are still to be run, the longest first.

    Args:
        tokens: Tokens of the corpus.
        window: Sequences to run; those that give no row are left out.
        padding_id: Id shown where there is no token.
    """

    def __init__(self, tokens: Tokens, window: range, padding_id: int) -> None:
        lengths = tokens.lengths
        order = np.arange(window.start, window.stop)
        order = order[np.diff(tokens.place_offsets)[order] > 0]
        self._tokens, self._padding_id = tokens, padding_id
        self._left = order[np.argsort(-lengths[order], kind="stable")]

    def __bool__(self) -> bool:
        return len(self._left) > 0

    def batch(self, batch_tokens: int) -> Batch:
        """Return the next sequences; they stay pending until they are done.

        Args:
            batch_tokens: Largest size of a batch, padding included; a longer sequence runs alone.
        """
        # The first is the longest, so that it decides the width of the batch.
        longest = int(self._tokens.lengths[self._left[0]])
        chosen = self._left[: max(1, batch_tokens // longest)]
        if self._tokens.rate > 1:
            # A row that spans padding would be another one: only equal lengths run together.
            chosen = chosen[self._tokens.lengths[chosen] == longest]
        return _pad(self._tokens, chosen, self._padding_id)

    def done(self, batch: Batch) -> None:
        """Take the sequences of a batch off."""
        self._left = self._left[batch.shape[0] :]


def _pad(tokens: Tokens, sequences: NDArray[np.int64], padding_id: int) -> Batch:
    lengths = tokens.lengths[sequences]
    present = np.arange(lengths.max()) < lengths[:, None]
    token_ids = np.full(present.shape, padding_id, dtype=np.int64)
    token_ids[present] = tokens.token_id[_ranges(tokens.offsets, sequences)]
    mask = torch.from_numpy(present.astype(np.int64))
    inputs = text_inputs(torch.from_numpy(token_ids), mask)
    if tokens.masks is not None:
        inputs |= _hide(token_ids, present, tokens.masks, sequences, tokens.offsets)
    return make_batch(tokens, sequences, present, inputs)


def _hide(
    token_ids: NDArray[np.int64],
    present: NDArray[np.bool_],
    masks: Masks,
    sequences: NDArray[np.int64],
    offsets: NDArray[np.int64],
) -> dict[str, Tensor]:
    """Return the ids with masked tokens, and beside them what those had been."""
    hidden = np.zeros_like(present)
    hidden[present] = masks.hidden[_ranges(offsets, sequences)]
    return {
        "input_ids": torch.from_numpy(np.where(hidden, masks.mask_id, token_ids)),
        "labels": torch.from_numpy(np.where(hidden, token_ids, NO_TARGET)),
    }


def _ranges(offsets: NDArray[np.int64], sequences: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers from each sequence's offset up to the next, one after the other."""
    return np.concatenate([np.arange(*offsets[i : i + 2]) for i in sequences])
