"""How the rows of a stack lie in an image: special tokens first, then a grid, row by row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flows.capture.errors import StructureError

_MOST_SPECIAL: Final = 32
"""Largest number of class, distillation and register tokens that is believed."""


@dataclass(frozen=True)
class Extent:
    """The rows that a stack makes of one image.

    Attributes:
        special: Tokens before those of the grid: class, distillation, registers.
        height: Rows of the grid.
        width: Columns of the grid.
    """

    special: int
    height: int
    width: int

    def __len__(self) -> int:
        return self.special + self.height * self.width

    def places(self) -> dict[str, NDArray[np.int32]]:
        """Return ``row`` and ``column`` of each token (token,), -1 for special ones."""
        row, column = np.divmod(np.arange(self.height * self.width, dtype=np.int32), self.width)
        before = np.full(self.special, -1, dtype=np.int32)
        return {
            "row": np.concatenate([before, row]).astype(np.int32),
            "column": np.concatenate([before, column]).astype(np.int32),
        }


def find_extent(rows: int, size: tuple[int, int], patch: tuple[int, int] | None) -> Extent:
    """Tell how rows lie in an image.

    Args:
        rows: Number of rows that the image gives.
        size: Height and width of the image in pixels.
        patch: Those of a patch; None where it is only known that rows have the image's proportions.

    Raises:
        StructureError: If no grid has so many cells.
    """
    if patch is not None:
        height, width = (length // step for length, step in zip(size, patch, strict=True))
        if 0 <= rows - height * width <= _MOST_SPECIAL:
            return Extent(rows - height * width, height, width)
    else:
        height = max(1, round(math.sqrt(rows * size[0] / size[1])))
        if rows % height == 0:
            return Extent(0, height, rows // height)
    raise StructureError(
        f"an image of {size[0]} × {size[1]} pixels gives {rows} rows"
        + (f" of patches of {patch[0]} × {patch[1]}" if patch else "")
        + ": expected a grid of cells, after at most a few special tokens"
    )
