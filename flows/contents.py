"""What steps hold, and what was added to them, as the command line names sites and layers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from store.messages import site_name
from store.schema import sites_among

if TYPE_CHECKING:
    from store.catalogue import HeldStep


@dataclass(frozen=True)
class Contents:
    """What a step holds in all of its stacks.

    Attributes:
        layers: Layers or blocks of each site, none of a site without.
        n_blocks: Blocks of the deepest stack.
        n_tokens: Tokens of the longest stack.
        stored_bytes: Encoded bytes.
    """

    layers: Mapping[str, Sequence[int]]
    n_blocks: int
    n_tokens: int
    stored_bytes: int

    @property
    def named(self) -> tuple[str, ...]:
        """The sites, each with its layers where those are not all."""
        return tuple(
            site_name(site, self.layers[site], self.n_blocks) for site in sites_among(self.layers)
        )

    def beyond(self, former: Contents) -> Contents:
        """Return what is there and was not before: sites, layers, tokens and bytes."""
        layers = {
            site: [number for number in own if number not in former.layers.get(site, ())]
            for site, own in self.layers.items()
        }
        return Contents(
            {site: own for site, own in layers.items() if own or site not in former.layers},
            self.n_blocks,
            self.n_tokens - former.n_tokens if former.layers else 0,
            max(self.stored_bytes - former.stored_bytes, 0),
        )


def contents_of(stacks: Collection[HeldStep]) -> Contents:
    """Return what a step holds, from what it holds of each stack."""
    layers: dict[str, set[int]] = {}
    for one in stacks:
        for site in one.sites:
            layers.setdefault(site, set()).update(one.layers.get(site, ()))
    return Contents(
        {site: sorted(own) for site, own in layers.items()},
        max((one.n_blocks for one in stacks), default=0),
        max((one.n_tokens for one in stacks), default=0),
        sum(one.stored_bytes for one in stacks),
    )
