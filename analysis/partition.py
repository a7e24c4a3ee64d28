"""Partition functions Z(c) = Σ exp(c·h) along the eigenvectors of Σhhᵀ, in logarithms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.rows import Rows

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PartitionFunctions:
    """log Z(c) for c = + and − each eigenvector (2, component); empty without rows."""

    logarithms: Floats


def partition_functions(blocks: Iterator[tuple[int, Rows]], axes: Floats, groups: int) -> Floats:
    """Sum the partition functions of groups of rows.

    Args:
        blocks: Yields the group of some rows and the rows (token, dim).
        axes: Directions c (dim, component).
        groups: Number of groups.

    Returns:
        log Z(±c) of each group (group, 2, component), −∞ for a group without rows.
    """
    logarithms = np.full((groups, 2, axes.shape[1]), -np.inf)
    for group, rows in blocks:
        if len(rows) == 0:
            continue
        along = rows.astype(np.float64) @ axes
        for sign, values in enumerate((along, -along)):
            logarithms[group, sign] = np.logaddexp(logarithms[group, sign], _log_sum(values))
    return logarithms


def of_groups(logarithms: Sequence[Floats]) -> PartitionFunctions:
    """Return the partition functions of some groups, each (2, component), together."""
    if not any(np.isfinite(group).any() for group in logarithms):
        return PartitionFunctions(np.empty(0))
    return PartitionFunctions(_log_sum(np.stack(list(logarithms))))


def _log_sum(values: Floats) -> Floats:
    """Return log Σ exp over the first axis, without overflow."""
    largest = values.max(axis=0)
    with np.errstate(invalid="ignore"):
        shifted = np.where(np.isneginf(largest), -np.inf, values - largest)
    sums: Floats = np.exp(shifted).sum(axis=0)
    with np.errstate(divide="ignore"):
        logarithms: Floats = np.log(sums) + np.where(np.isneginf(largest), 0, largest)
    return logarithms
