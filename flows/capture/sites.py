"""The sites of a model whose values can be captured, and how each is tapped."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flows.capture import reductions, taps
from flows.capture.attention import EAGER, Attention
from flows.capture.errors import UnknownSiteError
from flows.capture.structure import Stack
from flows.capture.taps import Sink, Tap

Sizes = dict[str, int] | None
"""Sizes of the dimensions of a site of a stack, None if the stack lacks it."""


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
    """What a site is.

    Attributes:
        dims: Dimensions of the site but step, in the order of the store.
        sizes: Gives the size of each dimension but token, None if a stack lacks the site.
        tap: How its values are reached.
        first_position: Position before which the site is NaN by definition.
    """

    dims: tuple[str, ...]
    sizes: Callable[[Stack], Sizes]
    tap: Tap
    first_position: int = 0


def _residual_sizes(stack: Stack) -> Sizes:
    return {"layer": stack.n_blocks + 1, "dim": stack.width}


def _final_norm_sizes(stack: Stack) -> Sizes:
    return None if stack.final_norm is None else {"dim": stack.width}


def _sublayer_sizes(stack: Stack) -> Sizes:
    return None if stack.sublayers is None else {"block": stack.n_blocks, "dim": stack.width}


def _query_sizes(stack: Stack) -> Sizes:
    own = stack.attention
    return None if own is None or (own.rotary and own.query is None) else _queries(stack, own)


def _rotated_query_sizes(stack: Stack) -> Sizes:
    own = stack.attention
    return None if own is None or not own.rotary else _queries(stack, own)


def _key_sizes(stack: Stack) -> Sizes:
    own = stack.attention
    return None if own is None or (own.rotary and own.key is None) else _keys(stack, own)


def _rotated_key_sizes(stack: Stack) -> Sizes:
    own = stack.attention
    return None if own is None or not own.rotary else _keys(stack, own)


def _value_sizes(stack: Stack) -> Sizes:
    own = stack.attention
    return None if own is None else _keys(stack, own) | {"head_dim": own.value_dim}


def _row_sizes(stack: Stack) -> Sizes:
    own = stack.attention
    if own is None or own.implementation != EAGER:
        return None
    return {"block": stack.n_blocks, "head": own.heads}


def _loss_sizes(stack: Stack) -> Sizes:
    return {} if stack.predicts_next else None


def _queries(stack: Stack, own: Attention) -> dict[str, int]:
    return {"block": stack.n_blocks, "head": own.heads, "head_dim": own.head_dim}


def _keys(stack: Stack, own: Attention) -> dict[str, int]:
    sizes = {"block": stack.n_blocks, "key_value_head": own.key_value_heads}
    return sizes | {"head_dim": own.head_dim}


_STATES = ("block", "token", "dim")
_HEADS = ("block", "head", "token", "head_dim")
_KEY_VALUE_HEADS = ("block", "key_value_head", "token", "head_dim")
_ROWS = ("block", "head", "token")

SITES: Final[Mapping[str, Site]] = {
    "residual": Site(("layer", "token", "dim"), _residual_sizes, taps.residual),
    "final_norm": Site(("token", "dim"), _final_norm_sizes, taps.final_norm),
    "attention_output": Site(
        _STATES, _sublayer_sizes, taps.sublayer(lambda sublayers: sublayers.attention)
    ),
    "mlp_output": Site(_STATES, _sublayer_sizes, taps.sublayer(lambda sublayers: sublayers.mlp)),
    "query": Site(
        _HEADS,
        _query_sizes,
        taps.unrotated(lambda attention: attention.query, lambda call: call.query),
    ),
    "key": Site(
        _KEY_VALUE_HEADS,
        _key_sizes,
        taps.unrotated(lambda attention: attention.key, lambda call: call.key),
    ),
    "value": Site(_KEY_VALUE_HEADS, _value_sizes, taps.heads(lambda call: call.value)),
    "query_rotary": Site(_HEADS, _rotated_query_sizes, taps.heads(lambda call: call.query)),
    "key_rotary": Site(_KEY_VALUE_HEADS, _rotated_key_sizes, taps.heads(lambda call: call.key)),
    "attention_entropy": Site(_ROWS, _row_sizes, taps.heads(reductions.entropy)),
    "attention_max": Site(_ROWS, _row_sizes, taps.heads(reductions.largest)),
    "attention_logit_deviation": Site(_ROWS, _row_sizes, taps.heads(reductions.logit_deviation)),
    "attention_first_key": Site(_ROWS, _row_sizes, taps.heads(reductions.first_key)),
    "token_loss": Site(("token",), _loss_sizes, taps.token_loss, first_position=1),
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
    """Give the values of sites to their sinks in every forward pass, until the end of the block."""
    with ExitStack() as attached:
        for name, sink in sinks.items():
            attached.enter_context(SITES[name].tap(stack, sink))
        yield
