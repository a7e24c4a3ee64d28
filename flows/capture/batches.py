"""Groups sequences into batches of similar length, inside windows of bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flows.capture.running import text_inputs
from flows.capture.tokens import Tokens


@dataclass(frozen=True)
class Batch:
    """Sequences that are run together.

    Attributes:
        inputs: What the model is shown, by the names of its arguments.
        shape: Sequences, and positions of each, padding included.
        real: (row,) where the real tokens lie once the two dimensions are flattened.
        rows: (row,) number of each real token within the corpus, in the same order.
    """

    inputs: Mapping[str, Tensor]
    shape: tuple[int, int]
    real: Tensor
    rows: NDArray[np.int64]


def windows(tokens: Tokens, rows: int) -> Iterator[range]:
    """Yield ranges of sequences of at most `rows` tokens together, or of one longer sequence."""
    offsets = tokens.offsets
    start = 0
    while start < tokens.n_sequences:
        stop = int(np.searchsorted(offsets, offsets[start] + rows, side="right")) - 1
        stop = max(stop, start + 1)
        yield range(start, stop)
        start = stop


def batches(tokens: Tokens, window: range, batch_tokens: int, padding_id: int) -> Iterator[Batch]:
    """Yield the sequences of a window in batches padded on the right, the longest first.

    Args:
        tokens: Tokens of the corpus.
        window: Sequences to run.
        batch_tokens: Largest size of a batch, padding included; a longer sequence runs alone.
        padding_id: Id shown where there is no token.
    """
    lengths = tokens.lengths
    order = np.arange(window.start, window.stop)
    order = order[lengths[order] > 0]
    order = order[np.argsort(-lengths[order], kind="stable")]
    start = 0
    while start < len(order):
        # The first is the longest, so that it decides the width of the batch.
        count = max(1, batch_tokens // int(lengths[order[start]]))
        yield _pad(tokens, order[start : start + count], padding_id)
        start += count


def _pad(tokens: Tokens, sequences: NDArray[np.int64], padding_id: int) -> Batch:
    lengths = tokens.lengths[sequences]
    present = np.arange(lengths.max()) < lengths[:, None]
    rows = np.concatenate([np.arange(*tokens.offsets[i : i + 2]) for i in sequences])
    token_ids = np.full(present.shape, padding_id, dtype=np.int64)
    token_ids[present] = tokens.token_id[rows]
    mask = torch.from_numpy(present.astype(np.int64))
    return Batch(
        inputs=text_inputs(torch.from_numpy(token_ids), mask),
        shape=(len(sequences), present.shape[1]),
        real=torch.from_numpy(np.flatnonzero(present)),
        rows=rows,
    )
