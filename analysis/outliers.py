"""Telling norm outliers from typical rows before the median of the norms is known."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.populations import CONTENT, OUTLIER_FACTOR, Codes

Floats = npt.NDArray[np.float64]
Parts = npt.NDArray[np.int8]

EXCLUDED: Final = 0
"""Part of the rows that ``content`` leaves out."""
TYPICAL: Final = 1
"""Part of the rows of ``content`` that are no outliers."""
OUTLIER: Final = 2
"""Part of the rows of ``content`` that are."""
UNDECIDED: Final = 3
"""Part of the rows of ``content`` near the threshold, as far as it is known."""
DROPPED: Final = -1
"""Part of the rows that are not finite."""

_BAND: Final = (0.8, 1.25)
"""Shares of the estimated threshold between which rows are undecided."""


class OutlierRule:
    """Sorts rows into parts as they go by.

    The threshold is estimated from the norms seen so far, again whenever their number has
    doubled; rows near the estimate stay undecided. Where the exact threshold lies between the
    largest typical and the smallest outlying norm, it agrees with everything that was decided.

    Args:
        codes: Code of every row of the layer (token).
        exact: The median norm of content, where it is known; nothing is undecided then.
        separate: Whether outliers are to be told apart at all.

    Attributes:
        largest_typical: Largest norm that was taken for typical.
        smallest_outlier: Smallest norm that was taken for an outlier.
    """

    def __init__(self, codes: Codes, *, exact: float | None, separate: bool) -> None:
        self._codes = codes
        self._exact = exact
        self._separate = separate
        self._seen: list[Floats] = []
        self._n_seen = 0
        self._n_estimated = 0
        self._estimate = math.nan if exact is None else exact
        self.largest_typical = 0.0
        self.smallest_outlier = math.inf

    def sort(self, start: int, norms: Floats) -> Parts:
        """Return the part of each row (token) of a block.

        Args:
            start: Number of the first row of the block.
            norms: Norms of its rows (token).
        """
        content = self._codes[start : start + len(norms)] == CONTENT
        finite = np.isfinite(norms)
        parts = np.where(content, TYPICAL, EXCLUDED).astype(np.int8)
        parts[~finite] = DROPPED
        content &= finite
        if self._separate and content.any():
            self._separate_outliers(parts, norms, content)
        return parts

    def _separate_outliers(
        self, parts: Parts, norms: Floats, content: npt.NDArray[np.bool_]
    ) -> None:
        if self._exact is None:
            self._update_estimate(norms[content])
        low, high = _BAND if self._exact is None else (1.0, 1.0)
        threshold = OUTLIER_FACTOR * self._estimate
        outlier = content & (norms > high * threshold)
        undecided = content & (norms > low * threshold) & ~outlier
        parts[outlier] = OUTLIER
        parts[undecided] = UNDECIDED
        typical = parts == TYPICAL
        self.largest_typical = max(self.largest_typical, norms[typical].max(initial=0.0))
        self.smallest_outlier = min(self.smallest_outlier, norms[outlier].min(initial=math.inf))

    def _update_estimate(self, norms: Floats) -> None:
        self._seen.append(norms)
        self._n_seen += len(norms)
        if self._n_seen >= 2 * self._n_estimated:
            self._estimate = float(np.median(np.concatenate(self._seen)))
            self._n_estimated = self._n_seen
