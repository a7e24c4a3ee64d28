"""Runs one window of sequences, in batches that fit the memory there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from flows.capture.batches import Batch, Pending, Waiting
from flows.capture.errors import MemoryShortageError
from flows.capture.items import ItemTokens
from flows.capture.rows import Staging
from flows.capture.running import evaluating, run
from flows.capture.sites import tapped
from flows.capture.stack import Stack
from flows.capture.tokens import Tokens
from flows.capture.weights import LoadedModel

_SIGNS_OF_SHORTAGE: Final = ("can't allocate memory", "not enough memory", "out of memory")
"""How torch words it where it has no class of its own for it."""


class _AllSeen(BaseException):  # no error: models must let it pass
    """Ends a forward pass of which nothing more is wanted."""


@dataclass
class Budget:
    """How large batches may be: halved whenever one does not fit.

    Attributes:
        tokens: Largest size of a batch in tokens, padding included.
    """

    tokens: int

    def halve(self, batch: Batch) -> None:
        """Allow half of what a batch had, at most.

        Raises:
            MemoryShortageError: If the batch was a single sequence.
        """
        if batch.shape[0] == 1:
            raise MemoryShortageError(
                f"there is no memory to run one sequence of {batch.n_tokens} tokens: expected to "
                "run at least one at a time; cut the corpus into shorter sequences, keep fewer "
                "sites, or use another device"
            )
        self.tokens = max(1, batch.shape[0] * batch.shape[1] // 2)


@dataclass(frozen=True)
class Target:
    """Where the rows of a stack go.

    Attributes:
        stack: The stack.
        tokens: Its tokens.
        staging: Takes the rows.
    """

    stack: Stack
    tokens: Tokens
    staging: Staging


def run_window(
    loaded: LoadedModel,
    targets: Sequence[Target],
    window: range,
    budget: Budget,
    progress: Callable[[int], None] | None,
) -> None:
    """Run the sequences of a window and leave their rows in stagings.

    Batches are made of the tokens of the first target; the others are stages of the same model,
    which the same forward pass gives.

    A batch that does not fit the memory is run again in halves, and so are those after it.

    Raises:
        MemoryShortageError: If a single sequence does not fit.
    """
    pending = _waiting(loaded, targets[0].tokens, window)
    while pending:
        batch = pending.batch(budget.tokens)
        try:
            with evaluating(loaded.model):
                while pending:
                    batch = pending.batch(budget.tokens)
                    done = _run_batch(loaded, batch, targets)
                    pending.done(batch)
                    if progress is not None:
                        progress(done)
        except (MemoryError, RuntimeError) as error:
            if not _is_shortage(error):
                raise
            budget.halve(batch)
            shortage = True
        else:
            shortage = False
        if shortage and loaded.device.type == "cuda":
            # Only here, where the failed pass holds nothing any more.
            torch.cuda.empty_cache()
    for target in targets:
        target.staging.close(loaded.devices)


def _run_batch(loaded: LoadedModel, batch: Batch, targets: Sequence[Target]) -> int:
    """Run a batch, and return how many tokens that gave, those of all targets together."""
    shares = [batch] + [_beside(batch, target.tokens) for target in targets[1:]]
    for target, share in zip(targets, shares, strict=True):
        target.staging.begin(share)

    def stop_if_done() -> None:
        if all(target.staging.is_full for target in targets):
            raise _AllSeen

    # Entered anew for each batch: taps count the calls of a whole forward pass.
    with ExitStack() as watching, suppress(_AllSeen):
        for target in targets:
            sinks = target.staging.sinks(stop_if_done)
            watching.enter_context(tapped(target.stack, sinks))
        run(loaded.stack.root, loaded.stack.arguments(_on_device(loaded, batch)))
    for target, share in zip(targets, shares, strict=True):
        target.staging.end(share)
    return sum(share.n_tokens for share in shares)


def _beside(batch: Batch, tokens: Tokens) -> Batch:
    assert isinstance(tokens, ItemTokens)
    return tokens.beside(batch)


def _waiting(loaded: LoadedModel, tokens: Tokens, window: range) -> Waiting:
    if isinstance(tokens, ItemTokens):
        return tokens.waiting(window)
    return Pending(tokens, window, _padding_id(loaded))


def _on_device(loaded: LoadedModel, batch: Batch) -> dict[str, Tensor]:
    return {
        name: value.to(loaded.device, loaded.model.dtype if value.is_floating_point() else None)
        for name, value in batch.inputs.items()
    }


def _is_shortage(error: MemoryError | RuntimeError) -> bool:
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return any(sign in str(error) for sign in _SIGNS_OF_SHORTAGE)


def _padding_id(loaded: LoadedModel) -> int:
    padding = getattr(loaded.model.config.get_text_config(), "pad_token_id", None)
    return int(padding) if isinstance(padding, int) and padding >= 0 else 0
