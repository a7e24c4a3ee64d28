"""Central moments of the parts of a layer, by group of sequences and in total."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from analysis.groups import PackedMatrix, PackedRows
from analysis.layer import UNIT, GroupPart
from analysis.moments import CentralMoments
from analysis.outliers import EXCLUDED, OUTLIER, TYPICAL, Parts
from analysis.rows import Rows
from analysis.staging import Stage

Floats = npt.NDArray[np.float64]


class PartMoments:
    """Accumulates the moments of disjoint parts, one group of sequences after another.

    Args:
        dim: Width of the rows.
        keys: Parts to accumulate: ``EXCLUDED``, ``TYPICAL``, ``OUTLIER``, ``UNIT``.
        scatter: Whether products between dimensions are needed.
        keep_scatters: Whether they are needed by group, too.
        precise: Whether they are computed in float64.
    """

    def __init__(
        self,
        dim: int,
        keys: Collection[int],
        *,
        scatter: bool,
        keep_scatters: bool,
        precise: bool = False,
    ) -> None:
        self._dim = dim
        self._keys = frozenset(keys)
        self._scatter = scatter
        self._precise = precise
        self._keep_scatters = keep_scatters
        self._stages: dict[int, Stage] = {}
        self.totals: dict[int, CentralMoments] = {}
        self.groups: list[dict[int, GroupPart]] = []

    def add(self, rows: Rows, inverse: Floats, parts: Parts) -> None:
        """Add rows of the present group.

        Args:
            rows: The rows (token, dim).
            inverse: One over the norm of each row (token), 0 for a row of zeros.
            parts: Part of each row (token).
        """
        for key in (EXCLUDED, TYPICAL, OUTLIER):
            if key in self._keys:
                self._stage(key).add(rows, np.flatnonzero(parts == key))
        if UNIT in self._keys:
            content = np.flatnonzero((parts >= TYPICAL) & (inverse > 0))
            self._stage(UNIT).add(rows, content, inverse)

    def close_group(self) -> None:
        """Let the rows added from now on belong to the next group."""
        group = {}
        for key, stage in self._stages.items():
            few = stage.few_rows() if self._keep_scatters else None
            central = stage.take()
            matrix = central.scatter if self._keep_scatters else None
            packed: PackedMatrix | PackedRows | None = None
            if matrix is not None:
                packed = PackedMatrix(matrix) if few is None else PackedRows(few)
            vectors = CentralMoments.zero(self._dim, scatter=False)
            vectors.merge(central)
            group[key] = GroupPart(vectors, packed)
            if key in self.totals:
                self.totals[key].merge(central)
            else:
                self.totals[key] = central
        self.groups.append(group)

    def _stage(self, key: int) -> Stage:
        if key not in self._stages:
            self._stages[key] = Stage(self._dim, scatter=self._scatter, precise=self._precise)
        return self._stages[key]
