"""The sites of a model whose values can be captured, and how each is tapped."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flows.capture import reductions, taps
from flows.capture.attention import EAGER, Attention
from flows.capture.errors import UnknownSiteError
from flows.capture.modules import INDEX, find_module, is_module
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
        chosen: Indices of the layers or blocks that are captured, None for all.
    """

    name: str
    dims: tuple[str, ...]
    sizes: Mapping[str, int]
    chosen: tuple[int, ...] | None = None

    @property
    def kept_sizes(self) -> dict[str, int]:
        """Size of each dimension but token, of what is captured."""
        own = {self.dims[0]: self.depth} if self._has_depth else {}
        return {**self.sizes, **own}

    def at_layers(self, layers: Sequence[int]) -> SiteShape:
        """Return the shape of the site at some layers, or at the blocks that give them.

        Raises:
            UnknownSiteError: If the model has not so many layers, or no block gives one of them.
        """
        if not self._has_depth:
            return self
        first = 1 if self.dims[0] == "block" else 0
        most = self.calls - 1 + first
        if max(layers) > most:
            raise UnknownSiteError(f"layer {max(layers)}: the model has layers 0 to {most}")
        chosen = tuple(layer - first for layer in layers if layer >= first)
        if not chosen:
            raise UnknownSiteError(f"{self.name!r} has no value at layer 0: name a block's layer")
        return replace(self, chosen=chosen)

    @property
    def calls(self) -> int:
        """How many times the site is seen in a forward pass."""
        return self.sizes[self.dims[0]] if self._has_depth else 1

    @property
    def depth(self) -> int:
        """Number of layers or blocks captured, 1 for a site without that dimension."""
        return self.calls if self.chosen is None else len(self.chosen)

    def place(self, depth: int) -> int | None:
        """Return where values at a depth go among those captured, None if they are not."""
        if self.chosen is None:
            return depth
        return self.chosen.index(depth) if depth in self.chosen else None

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
    return None if own is None or not _shows_rotated(own) else _queries(stack, own)


def _key_sizes(stack: Stack) -> Sizes:
    own = stack.attention
    return None if own is None or (own.rotary and own.key is None) else _keys(stack, own)


def _rotated_key_sizes(stack: Stack) -> Sizes:
    own = stack.attention
    return None if own is None or not _shows_rotated(own) else _keys(stack, own)


def _shows_rotated(own: Attention) -> bool:
    return own.rotary and own.implementation is not None


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
        taps.projected(lambda attention: attention.query, lambda call: call.query),
    ),
    "key": Site(
        _KEY_VALUE_HEADS,
        _key_sizes,
        taps.projected(lambda attention: attention.key, lambda call: call.key),
    ),
    "value": Site(
        _KEY_VALUE_HEADS,
        _value_sizes,
        taps.projected(lambda attention: attention.value, lambda call: call.value),
    ),
    "query_rotary": Site(_HEADS, _rotated_query_sizes, taps.heads(lambda call: call.query)),
    "key_rotary": Site(_KEY_VALUE_HEADS, _rotated_key_sizes, taps.heads(lambda call: call.key)),
    "attention_entropy": Site(_ROWS, _row_sizes, taps.heads(reductions.entropy)),
    "attention_max": Site(_ROWS, _row_sizes, taps.heads(reductions.largest)),
    "attention_logit_deviation": Site(_ROWS, _row_sizes, taps.heads(reductions.logit_deviation)),
    "attention_first_key": Site(_ROWS, _row_sizes, taps.heads(reductions.first_key)),
    "token_loss": Site(("token",), _loss_sizes, taps.token_loss, first_position=1),
}
"""Every site that can be captured, by its name in the store."""


def site_of(name: str) -> Site:
    """Return what a site is, one of :data:`SITES` or a module of the model.

    Raises:
        UnknownSiteError: If there is no such site.
    """
    if not is_module(name):
        if name not in SITES:
            raise UnknownSiteError(f"{name!r} is not a site: there are {', '.join(SITES)}")
        return SITES[name]
    unit = f"{name}_unit"

    def sizes(stack: Stack) -> Sizes:
        found = find_module(stack, name)
        return ({"block": found.depth} if found.indexed else {}) | {unit: found.width}

    dims = ("block", "token", unit) if INDEX in name else ("token", unit)
    return Site(dims, sizes, taps.module(name))


def available_sites(stack: Stack) -> tuple[str, ...]:
    """Return the names of the sites that a stack has."""
    return tuple(name for name, site in SITES.items() if site.sizes(stack) is not None)


def site_shapes(
    stack: Stack, sites: Sequence[str], layers: Sequence[int] | None = None
) -> list[SiteShape]:
    """Return the sizes of sites, at some layers where those are named.

    Raises:
        UnknownSiteError: If the stack does not have one of them, or a module is not one a token.
    """
    shapes = []
    for name in sites:
        known = name in SITES or is_module(name)
        sizes = site_of(name).sizes(stack) if known else None
        if sizes is None:
            raise UnknownSiteError(
                f"{name!r} is not a site of this model: it has {', '.join(available_sites(stack))}"
            )
        shapes.append(SiteShape(name, site_of(name).dims, sizes))
    return shapes if layers is None else [shape.at_layers(layers) for shape in shapes]


def sites_here(stack: Stack, stacks: Sequence[Stack], sites: Sequence[str]) -> tuple[str, ...]:
    """Return the sites without those that only another stack of the model has.

    Args:
        stack: One of the stacks.
        stacks: All of them.
        sites: Names of sites.
    """
    others = [other for other in stacks if other is not stack]
    return tuple(
        name
        for name in sites
        if _has_site(stack, name) or not any(_has_site(other, name) for other in others)
    )


def _has_site(stack: Stack, name: str) -> bool:
    try:
        return bool(site_shapes(stack, [name]))
    except UnknownSiteError:
        return False


@contextmanager
def tapped(stack: Stack, sinks: Mapping[str, Sink]) -> Iterator[None]:
    """Give the values of sites to their sinks in every forward pass, until the end of the block."""
    with ExitStack() as attached:
        for name, sink in sinks.items():
            attached.enter_context(site_of(name).tap(stack, sink))
        yield
