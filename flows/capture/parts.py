"""What is captured of a stack, and in how many passes over its tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from flows.capture.errors import InputError
from flows.capture.masks import MASKED
from flows.capture.rounding import FULL_PRECISION, Precision
from flows.capture.shapes import KEY_POSITION, SiteShape
from flows.capture.sites import site_of, site_shapes
from flows.capture.tokens import Tokens
from flows.capture.weights import LoadedModel

TOKEN_LOSS: Final = "token_loss"

_PASS_BYTES: Final = 128 << 20
"""Size of the probabilities of a sequence, in the blocks of one pass, or of one block."""


@dataclass(frozen=True)
class Part:
    """What is captured of one stack.

    Attributes:
        loaded: The model, with the stack chosen.
        tokens: What the stack is shown, or the rows that it makes of it.
        sites: Names of the sites to capture.
        block_rows: Every block of rows starts at a multiple of this, and only the last is smaller.
        layers: Layers that are captured, and blocks by the layers they give; all when None.
        precision: Dtype to whose values activations are rounded on the model's device.
        key_positions: Keys of a row of probabilities; those of the longest sequence when None.
        first: Number of layers or blocks that other passes capture before these.
        piece_bytes: Size of what is handed over at once, see `Blocks`; whole blocks when None.
    """

    loaded: LoadedModel
    tokens: Tokens
    sites: Sequence[str]
    block_rows: int
    layers: Sequence[int] | None = None
    precision: Precision = FULL_PRECISION
    key_positions: int | None = None
    first: int = 0
    piece_bytes: int | None = None

    @property
    def depths(self) -> slice:
        """Which layers or blocks these are among those of all passes."""
        counts = [shape.depth for shape in self.shapes() if shape.by_key]
        return slice(self.first, self.first + counts[0]) if counts else slice(None)

    def shapes(self) -> list[SiteShape]:
        """Return the sizes of the sites.

        Raises:
            UnknownSiteError: If the stack does not have one of them.
        """
        keys = self.tokens.longest if self.key_positions is None else self.key_positions
        return site_shapes(self.loaded.stack, self.sites, self.layers, keys)

    def passes(self) -> list[Part]:
        """Return the same as parts that are captured one after the other, mostly one.

        The loss of masked tokens needs a pass in which they are masked. Probabilities of all
        blocks at once would be the largest thing in memory: so many blocks share a pass that those
        of the longest sequence stay small, and each pass ends with its last block.

        Raises:
            InputError: If nothing is masked where the loss of masked tokens is wanted.
        """
        rest = [name for name in self.sites if not self._has_own_pass(name)]
        found = [replace(self, sites=rest, tokens=replace(self.tokens, masks=None))] if rest else []
        for name in self.sites:
            if name == TOKEN_LOSS and self._has_own_pass(name):
                if self.tokens.masks is None:
                    raise InputError(f"{TOKEN_LOSS} needs tokens of which some are masked")
                found.append(replace(self, sites=[name]))
            elif self._has_own_pass(name):
                found += self._groups(name)
        return found

    def _has_own_pass(self, site: str) -> bool:
        if site == TOKEN_LOSS:
            return self.loaded.stack.predicts == MASKED
        return KEY_POSITION in site_of(site).dims

    def _groups(self, site: str) -> Iterator[Part]:
        one = replace(self, sites=[site], tokens=replace(self.tokens, masks=None))
        (shape,) = one.shapes()
        kept = range(shape.calls) if shape.chosen is None else shape.chosen
        of_block = shape.bytes_per_token // shape.depth * self.tokens.longest
        size = max(1, _PASS_BYTES // max(1, of_block))
        for start in range(0, len(kept), size):
            # Blocks by the layers that they give, which count from 1.
            layers = tuple(block + 1 for block in kept[start : start + size])
            yield replace(one, layers=layers, first=start)
