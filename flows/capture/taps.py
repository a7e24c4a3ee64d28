"""How the values of each kind of site are reached: hooks that hand them to a sink."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from flows.capture.attention import Attention, AttentionCall, watching_attention
from flows.capture.attention_rows import AttentionRows, watching_rows
from flows.capture.masks import NEXT, NO_TARGET
from flows.capture.modules import find_module
from flows.capture.probe import as_rows, hidden_argument, hidden_states
from flows.capture.rotary import Unrotated
from flows.capture.stack import Stack
from flows.capture.sublayers import Sublayers

Sink = Callable[[int, Tensor], None]
"""Takes the depth and the values (sequence, position, ...) of one site in one forward pass.

It must copy what it keeps: the model may change a tensor after its hook.
"""

Tap = Callable[[Stack, Sink], AbstractContextManager[None]]
"""Gives every value of a site to a sink in every forward pass, until the end of its context."""

HeadVectors = Callable[[AttentionCall], Tensor]
"""Picks (sequence, head, position, ...) from a computation of attention."""

Reduction = Callable[[AttentionRows], Tensor]
"""Makes (sequence, head, position, ...) of rows of attention."""


@contextmanager
def residual(stack: Stack, sink: Sink) -> Iterator[None]:
    """Tap the input of the first block, or what gives layer 0, and the output of every block."""
    # Counted by calls, not by modules: some models call one block many times.
    called = 0

    def before(_block: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        if called == 0 and stack.entry is None:
            sink(0, as_rows(hidden_argument(args, kwargs)))

    def enter(_entry: nn.Module, _args: object, output: object) -> None:
        sink(0, _rows(output))

    def after(_block: nn.Module, _args: object, output: object) -> None:
        nonlocal called
        called += 1
        sink(called, _rows(output))
        called %= stack.n_blocks

    with ExitStack() as attached:
        if stack.entry is not None:
            attached.callback(stack.entry.register_forward_hook(enter).remove)
        for block in stack.blocks:
            handle = block.register_forward_pre_hook(before, with_kwargs=True)
            attached.callback(handle.remove)
            attached.callback(block.register_forward_hook(after).remove)
        yield


def _rows(output: object) -> Tensor:
    hidden = hidden_states(output)
    assert hidden is not None
    return as_rows(hidden)


@contextmanager
def final_norm(stack: Stack, sink: Sink) -> Iterator[None]:
    """Tap the output of the final norm."""

    def after(_norm: nn.Module, _args: object, output: Tensor) -> None:
        sink(0, output)

    assert stack.final_norm is not None
    handle = stack.final_norm.register_forward_hook(after)
    try:
        yield
    finally:
        handle.remove()


def sublayer(pick: Callable[[Sublayers], nn.Module]) -> Tap:
    """Return the tap of what one of the two sublayers adds to the residual stream."""

    def tap(stack: Stack, sink: Sink) -> AbstractContextManager[None]:
        assert stack.sublayers is not None
        modules = tuple(pick(entry) for entry in stack.sublayers)
        return _outputs(modules, stack.n_blocks, sink, lambda output: output)

    return tap


def projected(pick: Callable[[Attention], Unrotated | None], after: HeadVectors) -> Tap:
    """Return the tap of queries, keys or values as they are projected.

    Args:
        pick: Says in which modules' outputs they are found.
        after: Picks them from attention, where they are the same there and can be watched.
    """

    def tap(stack: Stack, sink: Sink) -> AbstractContextManager[None]:
        assert stack.attention is not None
        found = pick(stack.attention)
        watched = stack.attention.implementation is not None
        if found is None or (watched and not stack.attention.rotary):
            return heads(after)(stack, sink)
        size = stack.attention.head_dim

        def view(output: Tensor) -> Tensor:
            vectors = found.vectors(output)
            return vectors.reshape(*vectors.shape[:2], -1, size)

        return _outputs(found.modules, stack.n_blocks, sink, view)

    return tap


def heads(vectors: HeadVectors) -> Tap:
    """Return the tap of something that every head has at every position."""

    def tap(stack: Stack, sink: Sink) -> AbstractContextManager[None]:
        def watch(block: int, call: AttentionCall) -> None:
            sink(block, vectors(call).transpose(1, 2))

        assert stack.attention is not None
        assert stack.attention.implementation is not None
        return watching_attention(
            stack.attention.implementation, stack.blocks, stack.n_blocks, watch
        )

    return tap


def rows(reduced: Reduction) -> Tap:
    """Return the tap of a number of every row of attention, or of the row itself."""

    def tap(stack: Stack, sink: Sink) -> AbstractContextManager[None]:
        assert stack.attention is not None
        found = stack.attention.returned_rows
        if found is None:
            return heads(lambda call: reduced(call.rows))(stack, sink)
        return watching_rows(found, lambda block, own: sink(block, reduced(own).transpose(1, 2)))

    return tap


def module(site: str) -> Tap:
    """Return the tap of the modules that a site names."""

    def tap(stack: Stack, sink: Sink) -> AbstractContextManager[None]:
        found = find_module(stack, site)
        is_text = stack.shown_rows is None
        view = (lambda output: output) if is_text else as_rows
        return _outputs(found.modules, found.depth, sink, view)

    return tap


@contextmanager
def token_loss(stack: Stack, sink: Sink) -> Iterator[None]:
    """Tap the logits, and turn them into the loss of each token that they are about."""
    targets: list[Tensor] = []

    def before(
        _root: nn.Module, args: object, kwargs: dict[str, Tensor]
    ) -> tuple[object, dict[str, Tensor]]:
        # Kept from the model, which would only compute the mean of all losses once more.
        targets[:] = [kwargs.pop("labels", kwargs["input_ids"])]
        return args, kwargs

    def after(
        _root: nn.Module,
        _args: object,
        output: Mapping[str, Tensor],
    ) -> None:
        losses = next_token_losses if stack.predicts == NEXT else masked_token_losses
        sink(0, losses(output["logits"], *targets))

    with ExitStack() as attached:
        handle = stack.root.register_forward_pre_hook(before, with_kwargs=True)
        attached.callback(handle.remove)
        attached.callback(stack.root.register_forward_hook(after).remove)
        yield


def masked_token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the negative log-likelihood of each token that was masked.

    Args:
        logits: (sequence, position, vocabulary) scores of the token at each position.
        targets: (sequence, position) ids of the tokens that were masked, ``NO_TARGET`` elsewhere.

    Returns:
        (sequence, position) losses in nats, NaN where nothing was masked. A loss that is not a
        number becomes infinite, so that it is not taken for the loss of a token that was shown.
    """
    hidden = targets != NO_TARGET
    losses = torch.full(targets.shape, torch.nan, device=logits.device)
    own = cross_entropy(logits[hidden].float(), targets[hidden], reduction="none")
    losses[hidden] = own.nan_to_num(nan=torch.inf, posinf=torch.inf)
    return losses


def next_token_losses(logits: Tensor, token_ids: Tensor) -> Tensor:
    """Return the negative log-likelihood of each token given those before it.

    Args:
        logits: (sequence, position, vocabulary) scores of the token after each position.
        token_ids: (sequence, position) ids.

    Returns:
        (sequence, position) losses in nats, NaN at position 0, which nothing predicts.
    """
    losses = torch.full(token_ids.shape, torch.nan, device=logits.device)
    # One sequence at a time: a whole batch would double the memory of its logits.
    for own_losses, own_logits, ids in zip(losses, logits, token_ids, strict=True):
        own_losses[1:] = cross_entropy(own_logits[:-1].float(), ids[1:], reduction="none")
    return losses


@contextmanager
def _outputs(
    modules: tuple[nn.Module, ...], n_blocks: int, sink: Sink, view: Callable[[Tensor], Tensor]
) -> Iterator[None]:
    """Tap one module in each block."""
    called = 0

    def after(_module: nn.Module, _args: object, output: object) -> None:
        nonlocal called
        hidden = hidden_states(output)
        assert hidden is not None
        sink(called, view(hidden))
        called = (called + 1) % n_blocks

    with ExitStack() as attached:
        for module in modules:
            attached.callback(module.register_forward_hook(after).remove)
        yield
