"""Which tokens are hidden from a model that was trained to tell masked tokens, for its loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from flows.capture.tokens import Tokens

NEXT: Final = "next"
MASKED: Final = "masked"
"""Tokens that the logits of a model are about: the next one of each position, or masked ones."""

MASKED_SHARE: Final = 0.15
"""Of the tokens of a sequence, special ones not counted, as in the training of BERT."""

NO_TARGET: Final = -100
"""Where nothing is to be told; as in the labels of `transformers`."""


@dataclass(frozen=True)
class Masks:
    """Tokens that are replaced by the mask token, all at once.

    Attributes:
        hidden: (token,) whether a token is.
        mask_id: Id of the mask token.
    """

    hidden: NDArray[np.bool_]
    mask_id: int

    def select(self, tokens: Sequence[slice]) -> Masks:
        """Return those of some ranges of tokens, one after the other."""
        return Masks(np.concatenate([self.hidden[one] for one in tokens]), self.mask_id)


def draw_masks(tokens: Tokens, mask_id: int, seed: int) -> Masks:
    """Draw the tokens that are hidden: 15 % of each sequence, rounded, but at least one.

    Special tokens stay. Every hidden token is replaced by the mask token. What is drawn of a
    sequence does not depend on the sequences after it.

    Args:
        tokens: Every token of a corpus.
        mask_id: Id of the mask token.
        seed: Seed of the draw.
    """
    content = np.flatnonzero(~tokens.special)
    sequence = tokens.sequence[content]
    keys = np.random.default_rng(seed).random(len(tokens))[content]
    order = np.lexsort((keys, sequence))
    starts, stops = (np.searchsorted(sequence, sequence, side=side) for side in ("left", "right"))
    wanted = np.maximum(1, np.rint(MASKED_SHARE * (stops - starts)))
    hidden = np.zeros(len(tokens), dtype=np.bool_)
    hidden[content[order[np.arange(len(content)) - starts < wanted]]] = True
    return Masks(hidden, mask_id)
