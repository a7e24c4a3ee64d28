"""The loss of a model over a corpus, from the losses of its tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from flows.capture.blocks import RowBlock

TOKEN_LOSS: Final = "token_loss"


class MeanLoss:
    """Averages the losses of the tokens that something predicts."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._tokens = 0

    def watching(self, blocks: Iterable[RowBlock]) -> Iterator[RowBlock]:
        """Pass blocks on, and take the losses in as they go by, if there are any."""
        for block in blocks:
            losses = block.values.get(TOKEN_LOSS)
            if losses is not None:
                self.add(losses)
            yield block
            # It is to be gone once it is written, not once the next one is there.
            del block, losses

    def add(self, losses: npt.NDArray[np.float32]) -> None:
        """Take losses in (token,); NaN is left out."""
        self._sum += float(np.nansum(losses, dtype=np.float64))
        self._tokens += int(np.count_nonzero(~np.isnan(losses)))

    def mean(self) -> float:
        """Return the mean over all tokens but the first of each sequence, in nats; NaN of none."""
        return self._sum / self._tokens if self._tokens else math.nan
