"""What a pass over a stretch of a layer leaves behind, and how stretches become the layer.

A stretch is some consecutive groups of whole sequences. Each is passed over by a task of its own;
what they leave behind is put side by side by group, and merged in total.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.layer import GroupPart, LayerStatistics, UndecidedRows
from analysis.magnitudes import Sizes
from analysis.moments import CentralMoments
from analysis.outliers import TYPICAL, Parts
from analysis.populations import OUTLIER_FACTOR
from analysis.request import Request
from analysis.rows import Indices
from analysis.sequences import GroupDirections
from analysis.shapes import Shapes

Floats = npt.NDArray[np.float64]


@dataclass
class PartialSums:
    """What was summed over a stretch, in the terms of ``LayerStatistics``."""

    dim: int
    bounds: Indices
    totals: dict[int, CentralMoments]
    groups: list[dict[int, GroupPart]]
    directions: list[GroupDirections]
    shapes: list[Mapping[str, Shapes]]
    undecided: UndecidedRows


@dataclass
class PartialPass:
    """A pass over a stretch of rows.

    Attributes:
        first: Number of its first row.
        norms: Norm of every row (token).
        peaks: Size of the largest value of every row (token).
        drawn: Sizes of some values of every row (token, value).
        parts: Part of every row (token).
        sums: What was summed; None where too many rows were undecided to be kept.
        largest_typical: Largest norm that was taken for typical.
        smallest_outlier: Smallest norm that was taken for an outlier.
    """

    first: int
    norms: Floats
    peaks: Sizes
    drawn: Sizes
    parts: Parts
    sums: PartialSums | None
    largest_typical: float
    smallest_outlier: float


def median_norm(passes: Sequence[PartialPass]) -> float:
    """Return the median norm of content over all stretches, NaN without content."""
    norms = np.concatenate([one.norms[one.parts >= TYPICAL] for one in passes])
    return float(np.median(norms)) if len(norms) else math.nan


def combine(
    passes: Sequence[PartialPass], request: Request, sequence: Indices | None
) -> LayerStatistics | None:
    """Put the stretches of a layer together.

    Args:
        passes: All stretches of the layer; their sums are used up.
        request: What was collected.
        sequence: Number of the sequence of every row of the layer (token), None without.

    Returns:
        The statistics of the layer; None where the median norm of all rows refutes what a stretch
        decided, so that it has to be passed over again with that median.
    """
    ordered = sorted(passes, key=lambda one: one.first)
    median = median_norm(ordered)
    if any(_refuted(one, median) for one in ordered):
        return None
    sums = [one.sums for one in ordered if one.sums is not None]
    totals = sums[0].totals
    for later in sums[1:]:
        for key, moments in later.totals.items():
            if key in totals:
                totals[key].merge(moments)
            else:
                totals[key] = moments
    undecided = [one.undecided for one in sums]
    return LayerStatistics(
        dim=sums[0].dim,
        scatter=request.scatter,
        central=request.central,
        totals=totals,
        groups=[group for one in sums for group in one.groups],
        directions=[group for one in sums for group in one.directions],
        shapes=[group for one in sums for group in one.shapes],
        bounds=sums[0].bounds,
        norms=np.concatenate([one.norms for one in ordered]),
        peaks=np.concatenate([one.peaks for one in ordered]),
        drawn=np.concatenate([one.drawn for one in ordered]),
        parts=np.concatenate([one.parts for one in ordered]),
        sequence=sequence,
        undecided=UndecidedRows(
            np.concatenate([rows.values for rows in undecided]),
            np.concatenate([rows.tokens for rows in undecided]),
        ),
        median=median,
    )


def _refuted(found: PartialPass, median: float) -> bool:
    threshold = OUTLIER_FACTOR * median
    if found.sums is None:
        return True
    return bool(found.largest_typical > threshold or found.smallest_outlier <= threshold)
