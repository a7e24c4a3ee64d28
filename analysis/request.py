"""What a pass over the rows of a layer is asked for, and the memory that it may take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.groups import SCATTER_BYTES, group_bounds, group_count
from analysis.layer import needed_keys
from analysis.populations import Population, TokenTable
from analysis.rows import Indices

_UNDECIDED_BYTES: Final = 64 << 20
"""Undecided rows kept; beyond, only norms are collected, for a second pass."""


@dataclass(frozen=True)
class Request:
    """What a pass has to collect.

    Attributes:
        populations: Populations asked for.
        scatter: Whether products between dimensions are needed.
        central: Whether means and powers by dimension are needed, as for a scatter.
        shapes: Whether shapes of whole sequences are needed.
        errors: Whether standard errors of spectra are wanted, so that scatters are kept by group.
        grouped: Whether anything is kept by group; otherwise all rows are one.
        drop_nonfinite: Whether rows with NaN or infinity are left out, instead of refused.
        precise: Whether products run in float64 instead of float32.
        memory: Bytes that a worker has, None where that was not stated.
    """

    populations: tuple[Population, ...]
    scatter: bool = True
    central: bool = True
    shapes: bool = False
    errors: bool = True
    grouped: bool = True
    drop_nonfinite: bool = False
    precise: bool = False
    memory: int | None = None

    @property
    def scatter_bytes(self) -> int:
        """Memory for the scatters of groups."""
        return SCATTER_BYTES if self.memory is None else min(SCATTER_BYTES, self.memory // 4)

    @property
    def undecided_bytes(self) -> int:
        """Memory for rows that wait for the exact median norm."""
        return _UNDECIDED_BYTES if self.memory is None else min(_UNDECIDED_BYTES, self.memory // 8)

    def bounds(self, dim: int, table: TokenTable) -> Indices:
        """Return the first row of every group of sequences, and the number of rows (group + 1).

        Args:
            dim: Width of the rows.
            table: What is known about them.
        """
        if not self.grouped:
            return np.array([0, table.n], np.int64)
        scatters = len(needed_keys(self.populations)) if self.errors else 0
        return group_bounds(table, group_count(dim, scatters, self.scatter_bytes))
