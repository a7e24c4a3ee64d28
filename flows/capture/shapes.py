"""How large a site of a stack is, and which layers or blocks of it are captured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flows.capture.errors import UnknownSiteError

KEY_POSITION: Final = "key_position"


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
    def last_call(self) -> int:
        """Number of the call, from 1, that gives the last value that is captured."""
        return self.calls if self.chosen is None else max(self.chosen) + 1

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
    def by_key(self) -> bool:
        """Whether a row has a value for each position that a key may have."""
        return self.dims[-1] == KEY_POSITION

    @property
    def bytes_per_token(self) -> int:
        """Size of one row at all depths, in float32."""
        return 4 * self.depth * math.prod(self.features)

    def divided(self, together: int) -> list[range]:
        """Return the layers or blocks that are captured, so many together at most."""
        starts = range(0, self.depth, together)
        return [range(start, min(start + together, self.depth)) for start in starts]

    def in_store_order(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """View values (depth, token, ...) with the dimensions of the site."""
        own = values if self._has_depth else values[0]
        return np.moveaxis(own, 1 if self._has_depth else 0, self.dims.index("token"))

    @property
    def _has_depth(self) -> bool:
        return self.dims[0] in ("layer", "block")
