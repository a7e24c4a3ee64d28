"""The sites of a model whose values can be captured, and how each is tapped."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.hooks import RemovableHandle

from flows.capture.errors import UnknownSiteError
from flows.capture.structure import Stack, hidden_argument, hidden_states

Sink = Callable[[int, Tensor], None]
"""Takes the depth and the values (sequence, position, ...) of one site in one forward pass."""


@dataclass(frozen=True)
class SiteShape:
    """The extent of one site of one stack.

    Attributes:
        name: Name of the site.
        dims: Dimensions but step, in the order of the store.
        sizes: Size of each of them but token.
    """

    name: str
    dims: tuple[str, ...]
    sizes: Mapping[str, int]

    @property
    def depth(self) -> int:
        """Number of layers or blocks, 1 for a site without that dimension."""
        return self.sizes[self.dims[0]] if self._has_depth else 1

    @property
    def features(self) -> tuple[int, ...]:
        """Shape of one row at one depth."""
        start = 1 if self._has_depth else 0
        return tuple(self.sizes[dim] for dim in self.dims[start:] if dim != "token")

    @property
    def bytes_per_token(self) -> int:
        """Size of one row at all depths, in float32."""
        return 4 * self.depth * math.prod(self.features)

    def in_store_order(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """View values (depth, token, ...) with the dimensions of the site."""
        own = values if self._has_depth else values[0]
        return np.moveaxis(own, 1 if self._has_depth else 0, self.dims.index("token"))

    @property
    def _has_depth(self) -> bool:
        return self.dims[0] in ("layer", "block")


@dataclass(frozen=True)
class Site:
    """How the values of one site are reached.

    Attributes:
        dims: Dimensions of the site but step, in the order of the store.
        sizes: Gives the size of each dimension but token, None if a stack lacks the site.
        attach: Registers hooks that give every value of a forward pass to a sink.
        first_position: Position before which the site is NaN by definition.
    """

    dims: tuple[str, ...]
    sizes: Callable[[Stack], dict[str, int] | None]
    attach: Callable[[Stack, Sink], Iterator[RemovableHandle]]
    first_position: int = 0


def _residual_sizes(stack: Stack) -> dict[str, int]:
    return {"layer": stack.n_blocks + 1, "dim": stack.width}


def _attach_residual(stack: Stack, sink: Sink) -> Iterator[RemovableHandle]:
    # Counted by calls, not by modules: some models call one block many times.
    called = 0

    def before(_block: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        if called == 0:
            sink(0, hidden_argument(args, kwargs))

    def after(_block: nn.Module, _args: tuple[object, ...], output: object) -> None:
        nonlocal called
        called += 1
        hidden = hidden_states(output)
        assert hidden is not None
        sink(called, hidden)
        called %= stack.n_blocks

    for block in stack.blocks:
        yield block.register_forward_pre_hook(before, with_kwargs=True)
        yield block.register_forward_hook(after)


def _final_norm_sizes(stack: Stack) -> dict[str, int] | None:
    return None if stack.final_norm is None else {"dim": stack.width}


def _attach_final_norm(stack: Stack, sink: Sink) -> Iterator[RemovableHandle]:
    def after(_norm: nn.Module, _args: tuple[object, ...], output: Tensor) -> None:
        sink(0, output)

    assert stack.final_norm is not None
    yield stack.final_norm.register_forward_hook(after)


def _token_loss_sizes(stack: Stack) -> dict[str, int] | None:
    return {} if stack.predicts_next else None


def _attach_token_loss(stack: Stack, sink: Sink) -> Iterator[RemovableHandle]:
    def after(
        _root: nn.Module,
        _args: tuple[object, ...],
        kwargs: Mapping[str, Tensor],
        output: Mapping[str, Tensor],
    ) -> None:
        sink(0, next_token_losses(output["logits"], kwargs["input_ids"]))

    yield stack.root.register_forward_hook(after, with_kwargs=True)


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


SITES: Final[Mapping[str, Site]] = {
    "residual": Site(("layer", "token", "dim"), _residual_sizes, _attach_residual),
    "final_norm": Site(("token", "dim"), _final_norm_sizes, _attach_final_norm),
    "token_loss": Site(("token",), _token_loss_sizes, _attach_token_loss, first_position=1),
}
"""Every site that can be captured, by its name in the store."""


def available_sites(stack: Stack) -> tuple[str, ...]:
    """Return the names of the sites that a stack has."""
    return tuple(name for name, site in SITES.items() if site.sizes(stack) is not None)


def site_shapes(stack: Stack, sites: Sequence[str]) -> list[SiteShape]:
    """Return the sizes of sites.

    Raises:
        UnknownSiteError: If the stack does not have one of them.
    """
    shapes = []
    for name in sites:
        sizes = SITES[name].sizes(stack) if name in SITES else None
        if sizes is None:
            raise UnknownSiteError(
                f"{name!r} is not a site of this model: it has {', '.join(available_sites(stack))}"
            )
        shapes.append(SiteShape(name, SITES[name].dims, sizes))
    return shapes


@contextmanager
def tapped(stack: Stack, sinks: Mapping[str, Sink]) -> Iterator[None]:
    """Give the values of sites to their sinks in every forward pass, until the end of the block.

    Sinks must copy what they keep: the model may change a tensor after its hook.
    """
    with ExitStack() as attached:
        for name, sink in sinks.items():
            for handle in SITES[name].attach(stack, sink):
                attached.callback(handle.remove)
        yield
