"""Sounds as the decoder of a model is shown them: each with the same tokens beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from flows.capture.items import Items, ItemTokens, item_tokens

if TYPE_CHECKING:
    from flows.capture.extent import Extent
    from flows.capture.media_structure import Shapes


class Prompted:
    """Items of a corpus with the tokens of a decoder, which are its rows.

    Args:
        items: What the encoder is shown.
        prompt: Ids that the decoder is shown beside each (position,).
    """

    def __init__(self, items: Items, prompt: Sequence[int]) -> None:
        self._items, self._prompt = items, np.array(prompt, dtype=np.int32)

    def __len__(self) -> int:
        return len(self._items)

    def shapes(self) -> Shapes:
        """Return what one of them looks like to the encoder."""
        return self._items.shapes()

    def inputs(self, number: int) -> Mapping[str, Tensor]:
        """Return the arguments of one, with ``decoder_input_ids`` (position,) beside them."""
        ids = torch.from_numpy(self._prompt.astype(np.int64))
        return {**self._items.inputs(number), "decoder_input_ids": ids}

    def tokens(self, extent: Extent | None) -> ItemTokens:
        """Return the rows of the prompts; all of their tokens are added ones, of the whole sound.

        Raises:
            InputError: If an item is too short for one row of the encoder.
        """
        heard = self._items.tokens(extent)
        count, length = heard.n_sequences, len(self._prompt)
        first, last = heard.offsets[:-1], heard.offsets[1:] - 1
        starts, ends = heard.places["sample_start"][first], heard.places["sample_end"][last]
        lengths = np.full(count, length, dtype=np.int64)
        return item_tokens(
            self,
            numbers=heard.numbers,
            lengths=lengths,
            positions=lengths,
            special=np.ones(count * length, dtype=np.bool_),
            token_id=np.tile(self._prompt, count),
            places={
                "sample_start": np.repeat(starts, length),
                "sample_end": np.repeat(ends, length),
            },
            truncated=heard.truncated,
        )
