"""How many tokens are run together, and sorted by length together, in the memory there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from flows.capture.parts import TOKEN_LOSS
from flows.capture.shapes import SiteShape
from flows.capture.sites import site_shapes
from flows.capture.tokens import Tokens
from flows.capture.weights import LoadedModel

_BATCH_TOKENS: Final = {"cpu": 1024}
_BATCH_TOKENS_ELSEWHERE: Final = 16384
"""Size of a batch, padding included. On a CPU larger ones are no faster, and hold more padding."""

_WINDOW_BATCHES: Final = 8
"""Batches whose sequences are sorted together: enough for little padding."""

WINDOW_BYTES: Final = 96 << 20
"""Size of a window's rows above which it holds a single batch."""

_LOGIT_BYTES: Final = 128 << 20
"""Size of the logits of a batch, where they are needed."""

_PINNED_BYTES: Final = 1 << 30
"""Size of the rows of a batch that a GPU gives: two windows of them stand in pinned memory."""

_WIDTHS_AT_ONCE: Final = 64
"""Values that a block holds of a token at once, in widths of the model.

Twelve of a gated MLP, as many of attention and of the residual stream, and for a few thousand
positions those of eager attention, in float32, too.
"""

_SHARE_OF_FREE: Final = 2
"""One part in so many of a GPU's free memory is for a batch: blocks of it are cut in pieces."""


def batch_size(
    loaded: LoadedModel, sites: Sequence[str], layers: Sequence[int] | None = None
) -> int:
    """Return the size of a batch in tokens, padding included, where none is given.

    On a GPU what a block computes of them fits its free memory, and their rows, all of which are
    there before the first is written, that of the machine.

    Args:
        loaded: The model, on its device.
        sites: Names of the sites that are captured.
        layers: Layers that are captured, and blocks by the layers they give; all when None.
    """
    size = _BATCH_TOKENS.get(loaded.device.type, _BATCH_TOKENS_ELSEWHERE)
    if TOKEN_LOSS in sites:
        vocabulary = int(loaded.model.config.get_text_config().vocab_size)
        size = min(size, _LOGIT_BYTES // (4 * vocabulary))
    if loaded.device.type == "cuda":
        shapes = site_shapes(loaded.stack, sites, layers)
        # What has a value for each key has none here, and a limit of its own.
        size = min(size, _PINNED_BYTES // max(1, row_bytes(shapes)), _fitting(loaded))
    return max(1, size)


def _fitting(loaded: LoadedModel) -> int:
    """Return how many tokens the GPUs that hold the model have room for."""
    devices = [device for device in loaded.devices if device.type == "cuda"]
    free = min(torch.cuda.mem_get_info(device)[0] for device in devices)
    of_token = _WIDTHS_AT_ONCE * loaded.stack.width * loaded.model.dtype.itemsize
    return free // _SHARE_OF_FREE // of_token


def window_tokens(tokens: Tokens, n_bytes: int, batch_tokens: int) -> int:
    """Return how many tokens are sorted by length together.

    Args:
        tokens: Tokens of the corpus.
        n_bytes: Size of all that is captured of them.
        batch_tokens: Size of a batch in tokens.
    """
    affordable = WINDOW_BYTES * len(tokens) // n_bytes
    return min(max(batch_tokens, affordable), _WINDOW_BATCHES * batch_tokens)


def row_bytes(shapes: Sequence[SiteShape]) -> int:
    """Return the size of a row of several sites, at all their depths, in float32."""
    return sum(shape.bytes_per_token for shape in shapes)
