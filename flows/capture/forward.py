"""Runs a model over a corpus and yields its activations, block of rows by block of rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray

from flows.capture.affordable import WINDOW_BYTES, batch_size, row_bytes, window_tokens
from flows.capture.batches import windows
from flows.capture.blocks import Blocks, RowBlock, Staged, depths_together
from flows.capture.configs import longest_input
from flows.capture.errors import InputError, NonFiniteActivationError
from flows.capture.freed import FreedMemory
from flows.capture.items import ItemTokens
from flows.capture.parts import Part
from flows.capture.rounding import FULL_PRECISION, Precision
from flows.capture.rows import Staging
from flows.capture.shapes import KEY_POSITION, SiteShape
from flows.capture.sites import site_of
from flows.capture.tokens import Tokens
from flows.capture.weights import LoadedModel
from flows.capture.window import Budget, Target, run_window


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
        Blocks whose arrays belong to the caller. Sites that need a pass of their own come in blocks
        of their own after those of the others (`Part.passes`).

    Raises:
        InputError: If the tokens are not for this model.
        UnknownSiteError: If the model has no such site.
        NonFiniteActivationError: While iterating, unless allowed.
    """
    part = Part(loaded, tokens, sites, block_rows, layers, precision)
    passes = [
        capture_stacks([one], batch_tokens, allow_nonfinite, progress) for one in part.passes()
    ]
    return chain.from_iterable(passes)


def capture_whole(part: Part, *, batch_tokens: int | None = None) -> dict[str, NDArray[np.float32]]:
    """Return the values of all rows at once, whatever they are, for a few sequences.

    Args:
        part: What is captured.
        batch_tokens: As for `capture`.

    Returns:
        Site → values with the site's dimensions but step.
    """
    whole: dict[str, NDArray[np.float32]] = {}
    for one in replace(part, block_rows=part.tokens.n_rows).passes():
        (block,) = capture_stacks([one], batch_tokens, allow_nonfinite=True)
        for site, values in block.values.items():
            # Several passes capture one group of blocks each.
            former = [whole[site]] if site in whole else []
            whole[site] = np.concatenate([*former, values]) if former else values
    return whole


def capture_stacks(
    parts: Sequence[Part],
    batch_tokens: int | None = None,
    allow_nonfinite: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Iterator[RowBlock]:
    """Run a model once and yield what several of its stacks give; see :func:`capture`.

    Args:
        parts: One stack, or several stages of one model over the same images, the one of the most
            rows first; blocks tell which is theirs.
        batch_tokens: As for `capture`.
        allow_nonfinite: As for `capture`.
        progress: As for `capture`, with the tokens of all stacks.
    """
    first = parts[0]
    shapes = [part.shapes() for part in parts]
    if not isinstance(first.tokens, ItemTokens):
        _check_tokens(first.loaded, first.tokens)
    size = batch_tokens or batch_size(first.loaded, first.sites, first.layers)
    if any(KEY_POSITION in shape.sizes for own in shapes for shape in own):
        size = max(1, min(size, WINDOW_BYTES // sum(map(row_bytes, shapes))))
    budget = Budget(size)
    return _row_blocks(parts, shapes, budget, allow_nonfinite, progress)


def _row_blocks(
    parts: Sequence[Part],
    shapes: Sequence[Sequence[SiteShape]],
    budget: Budget,
    allow_nonfinite: bool,
    progress: Callable[[int], None] | None,
) -> Iterator[RowBlock]:
    loaded, tokens = parts[0].loaded, parts[0].tokens
    longest = int(tokens.lengths.max())
    pairs = list(zip(parts, shapes, strict=True))
    size = sum(row_bytes(own) * part.tokens.n_rows for part, own in pairs)
    most = max(longest, window_tokens(tokens, size, budget.tokens))
    # Where pieces are handed over, no block needs room beside the window that completes it.
    ends = None if parts[0].piece_bytes is None else parts[0].block_rows
    found = list(windows(tokens, most, ends))
    on_gpu = loaded.device.type == "cuda"
    # On a GPU the next window is computed while the rows of the one before are laid out.
    slots = [
        [_target(part, own, found, pinned=on_gpu) for part, own in pairs]
        for _ in range(min(2, len(found)) if on_gpu else 1)
    ]
    blocks = [
        Blocks(
            *(own, part.tokens.n_rows, part.block_rows),
            part=number,
            depth=part.first,
            piece_bytes=part.piece_bytes,
            copied=on_gpu,
        )
        for number, (part, own) in enumerate(pairs)
    ]
    waiting: deque[Sequence[Target]] = deque()
    freed = FreedMemory()
    for number, window in enumerate(found):
        targets = slots[number % len(slots)]
        for target, part in zip(targets, parts, strict=True):
            target.staging.open(*_rows_within(part, window))
        n_tokens = int(tokens.offsets[window.stop] - tokens.offsets[window.start])
        # Beside the rows of a smaller one there is room for what is kept, which costs less.
        is_large = ends is not None and n_tokens * size > WINDOW_BYTES * len(tokens)
        report = progress
        if ends is not None:
            report = freed.giving_back(progress, always=is_large)
        run_window(loaded, targets, window, budget, report)
        waiting.append(targets)
        while len(waiting) == len(slots) or (waiting and window is found[-1]):
            for target, own_blocks in zip(waiting.popleft(), blocks, strict=True):
                yield from own_blocks.add(*_taken(target, allow_nonfinite=allow_nonfinite))


def _target(
    part: Part, shapes: Sequence[SiteShape], found: Sequence[range], *, pinned: bool
) -> Target:
    sizes = [_rows_within(part, window) for window in found]
    staging = Staging(
        shapes,
        depths_together(shapes, part.tokens.n_rows, part.block_rows, part.piece_bytes),
        max(stop - origin for origin, _, stop in sizes),
        pinned=pinned,
        precision=part.precision,
    )
    return Target(part.loaded.stack, part.tokens, staging)


def _taken(target: Target, *, allow_nonfinite: bool) -> tuple[int, Staged]:
    target.staging.wait()
    rows, values = target.staging.take()
    if not allow_nonfinite:
        positions = target.tokens.coordinates()["position"].astype(np.int32)
        masked = target.tokens.masks is not None
        _check_finite(values, positions[rows.start : rows.stop], masked=masked)
    return rows.stop, values


def _rows_within(part: Part, window: range) -> tuple[int, int, int]:
    """Return the first row of the block in which a window begins, and its own first and stop."""
    offsets = part.tokens.row_offsets
    first, stop = int(offsets[window.start]), int(offsets[window.stop])
    return first - first % part.block_rows, first, stop


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


def _check_finite(values: Staged, positions: NDArray[np.int32], *, masked: bool) -> None:
    """Look at the last rows of a staging, at these positions: those of its window."""
    for name, staged in values.items():
        first = site_of(name).first_position
        depths = [one[len(one) - len(positions) :] for group in staged for one in group]
        for depth, rows in enumerate(map(torch.from_numpy, depths)):
            if masked:
                # There is no loss of what was not masked; one that is no number is infinite here.
                rows = rows.nan_to_num(nan=0.0, posinf=torch.inf)
            defined = rows[torch.from_numpy(positions >= first)] if first else rows
            # A sum is finite only if all its terms are; it is one pass without a temporary.
            if bool(torch.isfinite(defined.sum())):
                continue
            finite = torch.isfinite(defined.flatten(1) if defined.dim() > 1 else defined[:, None])
            count = int((~finite.all(dim=1)).sum())
            if count:
                raise NonFiniteActivationError(name, depth if len(depths) > 1 else None, count)
