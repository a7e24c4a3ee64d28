"""Images and sounds as a model is shown them, and the rows that it makes of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flows.capture.batches import Batch
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

    def select(self, sequences: Sequence[int]) -> ItemTokens:
        """Return some sequences alone, numbered anew."""
        rows = np.concatenate([np.r_[self.sequence_rows(sequence)] for sequence in sequences])
        chosen = np.asarray(sequences)
        return item_tokens(
            self.items,
            numbers=self.numbers[chosen],
            lengths=self.lengths[chosen],
            positions=self.positions[chosen],
            special=self.special[rows],
            places={name: column[rows] for name, column in self.places.items()},
        )

    def coordinates(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays along token by name."""
        return super().coordinates() | dict(self.places)

    def batches(self, window: range, batch_rows: int) -> Iterator[Batch]:
        """Yield the items of a window in batches of equal size, without any padding.

        Args:
            window: Sequences to run.
            batch_rows: Positions computed at once, at most, or as much of what they are computed
                from: early stages have many more than late ones. A longer item runs alone.
        """
        waiting: list[tuple[int, Mapping[str, Tensor]]] = []
        order = sorted(window, key=lambda sequence: (-int(self.positions[sequence]), sequence))
        for sequence in order:
            inputs = self.items.inputs(int(self.numbers[sequence]))
            size = max(int(self.positions[sequence]), _values(inputs) // _VALUES_OF_A_ROW)
            full = (len(waiting) + 1) * size > batch_rows
            if waiting and (full or _shapes(inputs) != _shapes(waiting[0][1])):
                yield self._batch(waiting)
                waiting = []
            waiting.append((sequence, inputs))
        if waiting:
            yield self._batch(waiting)

    def _batch(self, waiting: Sequence[tuple[int, Mapping[str, Tensor]]]) -> Batch:
        sequences = [sequence for sequence, _ in waiting]
        width = int(self.positions[sequences[0]])
        kept = [np.arange(self.lengths[sequence]) for sequence in sequences]
        real = np.concatenate([number * width + own for number, own in enumerate(kept)])
        rows = [self.offsets[sequence] + own for sequence, own in zip(sequences, kept, strict=True)]
        names = waiting[0][1]
        return Batch(
            inputs={name: torch.stack([inputs[name] for _, inputs in waiting]) for name in names},
            shape=(len(waiting), width),
            real=torch.from_numpy(real),
            rows=np.concatenate(rows),
        )


def item_tokens(
    items: Items,
    *,
    numbers: NDArray[np.int64],
    lengths: NDArray[np.int64],
    positions: NDArray[np.int64],
    special: NDArray[np.bool_],
    places: Mapping[str, NDArray[np.generic]],
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
        truncated: Number of items that were cut to the longest the model takes.
    """
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    count = int(offsets[-1])
    nothing = np.full(count, -1, dtype=np.int32)
    return ItemTokens(
        token_id=nothing,
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
