"""The sites of a model whose values can be captured, and how each is tapped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from flows.capture import reductions, taps
from flows.capture.attention import Attention
from flows.capture.errors import UnknownSiteError
from flows.capture.modules import INDEX, find_module, is_module
from flows.capture.shapes import KEY_POSITION, SiteShape
from flows.capture.stack import Stack
from flows.capture.taps import Sink, Tap

Sizes = dict[str, int] | None
"""Sizes of the dimensions of a site of a stack, None if the stack lacks it."""


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
    if own is None or not own.shows_rows:
        return None
    return {"block": stack.n_blocks, "head": own.heads}


def _probability_sizes(stack: Stack) -> Sizes:
    rows = _row_sizes(stack)
    # How many keys there are, only the tokens tell.
    return None if rows is None else rows | {KEY_POSITION: 0}


def _loss_sizes(stack: Stack) -> Sizes:
    return None if stack.predicts is None else {}


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
    "attention_entropy": Site(_ROWS, _row_sizes, taps.rows(reductions.entropy)),
    "attention_max": Site(_ROWS, _row_sizes, taps.rows(reductions.largest)),
    "attention_logit_deviation": Site(_ROWS, _row_sizes, taps.rows(reductions.logit_deviation)),
    "attention_first_key": Site(_ROWS, _row_sizes, taps.rows(reductions.first_key)),
    "attention_received": Site(_ROWS, _row_sizes, taps.rows(reductions.received)),
    "attention_probability": Site(
        ("block", "head", "token", KEY_POSITION), _probability_sizes, taps.rows(reductions.whole)
    ),
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
    stack: Stack,
    sites: Sequence[str],
    layers: Sequence[int] | None = None,
    key_positions: int = 0,
) -> list[SiteShape]:
    """Return the sizes of sites, at some layers where those are named.

    Args:
        stack: The stack.
        sites: Names of sites.
        layers: Layers, and blocks by the layers they give; all when None.
        key_positions: Positions of the longest sequence, for sites that have a value for each key.

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
        if KEY_POSITION in sizes:
            sizes = sizes | {KEY_POSITION: key_positions}
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
