"""Images and sounds as a model is shown them, and the rows that it makes of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flows.capture.batches import Batch, make_batch
from flows.capture.extent import Extent
from flows.capture.media_structure import Shapes
from flows.capture.tokens import Tokens

Read = Callable[[int], bytes]
"""Gives the bytes of an item by its number."""

_VALUES_OF_A_ROW: Final = 768
"""Values that a position is made from: those of a patch of 16 × 16 pixels."""


class Items(Protocol):
    """Images or sounds of a corpus, prepared for one checkpoint."""

    def __len__(self) -> int:
        """Return the number of items."""

    def shapes(self) -> Shapes:
        """Return what one of them looks like to the model."""

    def inputs(self, number: int) -> Mapping[str, Tensor]:
        """Return the arguments that show one to the model, without the axis of sequences."""

    def tokens(self, extent: Extent | None) -> ItemTokens:
        """Return the rows that a stack makes of all of them; `extent` is the stack's."""


@dataclass(frozen=True, kw_only=True)
class ItemTokens(Tokens):
    """The rows of a stack over images or sounds; a sequence is an item.

    Attributes:
        items: What the model is shown.
        numbers: (sequence,) number of each sequence's item.
        positions: (sequence,) positions that the stack computes for it; those after the ones that
            are kept stand for padding that the model insists on.
        places: Arrays along token that tell where in the image or sound it lies.
    """

    items: Items
    numbers: NDArray[np.int64]
    positions: NDArray[np.int64]
    places: Mapping[str, NDArray[np.generic]]

    @property
    def longest(self) -> int:
        """Number of positions that are computed for the item of the most."""
        return int(self.positions.max())

    def select(self, sequences: Sequence[int]) -> ItemTokens:
        """Return some sequences alone, numbered anew."""
        rows = np.concatenate([np.r_[self.sequence_tokens(sequence)] for sequence in sequences])
        chosen = np.asarray(sequences)
        own = item_tokens(
            self.items,
            numbers=self.numbers[chosen],
            lengths=self.lengths[chosen],
            positions=self.positions[chosen],
            special=self.special[rows],
            token_id=self.token_id[rows],
            places={name: column[rows] for name, column in self.places.items()},
        )
        return replace(own, kept=self.kept_among(sequences, own.offsets), pooled=self.pooled)

    def coordinates(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays along the rows by name; a mean lies nowhere in its image or sound."""
        places: dict[str, NDArray[np.generic]] = dict(self.places)
        if self.pooled:
            places = {name: np.full(self.n_rows, -1, v.dtype) for name, v in places.items()}
        elif self.kept is not None:
            places = {name: column[self.kept] for name, column in places.items()}
        return super().coordinates() | places

    def beside(self, batch: Batch) -> Batch:
        """Return the rows that the same items have here, which one forward pass gives as well."""
        width = int(self.positions[batch.sequences[0]])
        present = np.arange(width) < self.lengths[batch.sequences][:, None]
        return make_batch(self, batch.sequences, present, batch.inputs)

    def waiting(self, window: range) -> ItemsWaiting:
        """Return the items of a window that are to be run."""
        return ItemsWaiting(self, window)


class ItemsWaiting:
    """Items of a window that are still to be run, in batches of equal size without any padding.

    Args:
        tokens: Rows of all items.
        window: Sequences to run.
    """

    def __init__(self, tokens: ItemTokens, window: range) -> None:
        self._tokens = tokens
        self._left = sorted(window, key=lambda number: (-int(tokens.positions[number]), number))
        self._read: dict[int, Mapping[str, Tensor]] = {}

    def __bool__(self) -> bool:
        return bool(self._left)

    def batch(self, batch_tokens: int) -> Batch:
        """Return the next items; they stay until they are done.

        Args:
            batch_tokens: Positions computed at once, at most, or as much of what they are computed
                from: early stages have many more than late ones. A longer item runs alone.
        """
        tokens = self._tokens
        width = int(tokens.positions[self._left[0]])
        first = self._inputs(self._left[0])
        size = max(width, _values(first) // _VALUES_OF_A_ROW)
        chosen: list[int] = []
        for sequence in self._left[: max(1, batch_tokens // size)]:
            if _shapes(self._inputs(sequence)) != _shapes(first):
                break
            chosen.append(sequence)
        shown = [self._inputs(sequence) for sequence in chosen]
        sequences = np.array(chosen)
        return make_batch(
            tokens,
            sequences,
            np.arange(width) < tokens.lengths[sequences][:, None],
            {name: torch.stack([inputs[name] for inputs in shown]) for name in first},
        )

    def done(self, batch: Batch) -> None:
        """Take the items of a batch off."""
        for sequence in self._left[: batch.shape[0]]:
            del self._read[sequence]
        self._left = self._left[batch.shape[0] :]

    def _inputs(self, sequence: int) -> Mapping[str, Tensor]:
        if sequence not in self._read:
            self._read[sequence] = self._tokens.items.inputs(int(self._tokens.numbers[sequence]))
        return self._read[sequence]


def item_tokens(
    items: Items,
    *,
    numbers: NDArray[np.int64],
    lengths: NDArray[np.int64],
    positions: NDArray[np.int64],
    special: NDArray[np.bool_],
    places: Mapping[str, NDArray[np.generic]],
    token_id: NDArray[np.int32] | None = None,
    truncated: int = 0,
) -> ItemTokens:
    """Lay the rows of items one after the other.

    Args:
        items: What the model is shown.
        numbers: (sequence,) number of each item.
        lengths: (sequence,) rows that are kept of each.
        positions: (sequence,) positions that are computed for each.
        special: (token,) whether a row stands for no part of the image or sound.
        places: Further coordinates along token.
        token_id: (token,) ids that a decoder is shown; None where rows belong to no token.
        truncated: Number of items that were cut to the longest the model takes.
    """
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    count = int(offsets[-1])
    nothing = np.full(count, -1, dtype=np.int32)
    return ItemTokens(
        token_id=nothing if token_id is None else token_id,
        sequence=np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
        position=(np.arange(count) - np.repeat(offsets[:-1], lengths)).astype(np.int32),
        document=np.repeat(numbers.astype(np.int32), lengths),
        char_start=nothing,
        char_end=nothing,
        special=special,
        offsets=offsets,
        truncated=truncated,
        items=items,
        numbers=numbers,
        positions=positions,
        places=places,
    )


def _values(inputs: Mapping[str, Tensor]) -> int:
    return sum(value.numel() for value in inputs.values())


def _shapes(inputs: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in inputs.items()}
