"""Runs a model over a corpus and yields its activations, block of rows by block of rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flows.capture.batches import windows
from flows.capture.configs import longest_input
from flows.capture.errors import InputError, NonFiniteActivationError
from flows.capture.items import ItemTokens
from flows.capture.rounding import FULL_PRECISION, Precision
from flows.capture.rows import Blocks, RowBlock, Staging
from flows.capture.sites import SiteShape, site_of, site_shapes
from flows.capture.tokens import Tokens
from flows.capture.weights import LoadedModel
from flows.capture.window import Budget, run_window

_BATCH_TOKENS: Final = {"cpu": 2048}
_BATCH_TOKENS_ELSEWHERE: Final = 16384

_WINDOW_BATCHES: Final = 8
"""Batches whose sequences are sorted together: enough for little padding."""

_WINDOW_BYTES: Final = 128 << 20
"""Size of a window's rows above which it holds a single batch."""

_LOGIT_BYTES: Final = 128 << 20
"""Size of the logits of a batch, where they are needed."""


def capture(
    loaded: LoadedModel,
    tokens: Tokens,
    sites: Sequence[str],
    *,
    block_rows: int,
    layers: Sequence[int] | None = None,
    batch_tokens: int | None = None,
    allow_nonfinite: bool = False,
    precision: Precision = FULL_PRECISION,
    progress: Callable[[int], None] | None = None,
) -> Iterator[RowBlock]:
    """Run a model over all tokens and yield the values of its sites in the order of the corpus.

    Memory does not grow with the corpus: rows wait in one window of some batches and in one
    block. The model is left as it was found whenever control is outside, even after an
    exception, so that blocks may be taken at leisure.

    Args:
        loaded: The model.
        tokens: What it is shown; for the decoder of an encoder-decoder, what its encoder is
            shown, which the decoder sees one position later (`Tokens.shifted`).
        sites: Names of the sites to capture.
        block_rows: Every block starts at a multiple of this, and only the last is smaller.
        layers: Layers that are captured, and blocks by the layers they give; all when None.
        batch_tokens: Largest size of a batch, padding included; by the device when None.
        allow_nonfinite: Whether NaN and infinite values pass.
        precision: Dtype to whose values activations are rounded on the model's device.
        progress: Called with the number of tokens of each batch once it was run.

    Returns:
        Blocks whose arrays belong to the caller.

    Raises:
        InputError: If the tokens are not for this model.
        UnknownSiteError: If the model has no such site.
        NonFiniteActivationError: While iterating, unless allowed.
    """
    shapes = site_shapes(loaded.stack, sites, layers)
    if not isinstance(tokens, ItemTokens):
        _check_tokens(loaded, tokens)
    budget = Budget(batch_tokens or batch_size(loaded, sites))
    return _row_blocks(
        loaded, tokens, shapes, block_rows, budget, precision, allow_nonfinite, progress
    )


def _row_blocks(
    loaded: LoadedModel,
    tokens: Tokens,
    shapes: Sequence[SiteShape],
    block_rows: int,
    budget: Budget,
    precision: Precision,
    allow_nonfinite: bool,
    progress: Callable[[int], None] | None,
) -> Iterator[RowBlock]:
    longest = int(tokens.lengths.max())
    found = list(windows(tokens, max(longest, window_tokens(tokens, shapes, budget.tokens))))
    capacity = max(_rows_within(tokens, window) for window in found)
    on_gpu = loaded.device.type == "cuda"
    # On a GPU the next window is computed while the rows of the one before are laid out.
    stagings = [
        Staging(shapes, capacity, pinned=on_gpu, precision=precision)
        for _ in range(2 if on_gpu else 1)
    ]
    blocks = Blocks(shapes, tokens.n_rows, block_rows)
    positions = tokens.coordinates()["position"].astype(np.int32)
    waiting: deque[Staging] = deque()
    for number, window in enumerate(found):
        staging = stagings[number % len(stagings)]
        run_window(loaded, tokens, window, budget, staging, progress)
        waiting.append(staging)
        while len(waiting) == len(stagings) or (waiting and window is found[-1]):
            staging = waiting.popleft()
            staging.wait()
            rows, values = staging.take()
            if not allow_nonfinite:
                _check_finite(values, positions[rows])
            yield from blocks.add(rows, values)


def _rows_within(tokens: Tokens, window: range) -> int:
    return int(tokens.row_offsets[window.stop] - tokens.row_offsets[window.start])


def batch_size(loaded: LoadedModel, sites: Sequence[str]) -> int:
    """Return the size of a batch in tokens, padding included, where none is given."""
    size = _BATCH_TOKENS.get(loaded.device.type, _BATCH_TOKENS_ELSEWHERE)
    if "token_loss" not in sites:
        return size
    vocabulary = int(loaded.model.config.get_text_config().vocab_size)
    return max(1, min(size, _LOGIT_BYTES // (4 * vocabulary)))


def window_tokens(tokens: Tokens, shapes: Sequence[SiteShape], batch_tokens: int) -> int:
    """Return how many tokens are sorted by length together, for batches of a size in tokens."""
    bytes_per_row = sum(shape.bytes_per_token for shape in shapes)
    affordable = _WINDOW_BYTES * len(tokens) // (bytes_per_row * tokens.n_rows)
    return min(max(batch_tokens, affordable), _WINDOW_BATCHES * batch_tokens)


def _check_tokens(loaded: LoadedModel, tokens: Tokens) -> None:
    config = loaded.model.config
    vocabulary = None
    with suppress(NotImplementedError):  # A model of characters hashes them.
        vocabulary = getattr(loaded.stack.root.get_input_embeddings(), "num_embeddings", None)
    largest = int(tokens.token_id.max())
    if vocabulary is not None and largest >= vocabulary:
        raise InputError(
            f"token id {largest} is outside the vocabulary of {loaded.model_type}, "
            f"0 to {vocabulary - 1}: the tokenizer, or the ids, belong to another model"
        )
    longest, limit = int(tokens.lengths.max()), longest_input(config)
    if limit is not None and longest > limit:
        raise InputError(
            f"a sequence has {longest} tokens, {loaded.model_type} takes {limit}: "
            "cut the corpus into shorter sequences"
        )


def _check_finite(values: Mapping[str, Tensor], positions: NDArray[np.int32]) -> None:
    for name, staged in values.items():
        first = site_of(name).first_position
        defined = staged[:, torch.from_numpy(positions >= first)] if first else staged
        # A sum is finite only if all its terms are; it is one pass without a temporary.
        sums = defined.flatten(1).sum(dim=1)
        for depth in torch.nonzero(~torch.isfinite(sums)).flatten().tolist():
            rows = defined[depth].flatten(1) if defined.dim() > 2 else defined[depth, :, None]
            finite = torch.isfinite(rows).all(dim=1)
            if not bool(finite.all()):
                layer = depth if len(defined) > 1 else None
                raise NonFiniteActivationError(name, layer, int((~finite).sum()))
