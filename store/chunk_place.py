"""Where a chunk belongs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ChunkPlace:
    """Where a chunk belongs, in the words of whoever asked for its rows.

    Attributes:
        path: Group of the model.
        site: Name of the array.
        step: Training step.
        depth: Name of the depth dimension and its label, as ``("layer", 3)``, or None.
        tokens: First token and one past the last.
    """

    path: str
    site: str
    step: int
    depth: tuple[str, int] | None
    tokens: tuple[int, int]

    def __str__(self) -> str:
        depth = "" if self.depth is None else f", {self.depth[0]} {self.depth[1]}"
        first, stop = self.tokens
        return f"{self.path}: {self.site}, step {self.step}{depth}, tokens {first} to {stop - 1}"
