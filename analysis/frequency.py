"""Rows by how often their token occurs: their norms, and their cosines to the mean row.

Rare tokens that drift one way together are the long-tail account of anisotropy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.rows import Indices, Rows

Floats = npt.NDArray[np.float64]
Bins = npt.NDArray[np.int8]

FREQUENCIES: Final = tuple(1 << power for power in range(14))
"""Least number of occurrences of the tokens of each bin; the last one has no end."""


@dataclass(frozen=True)
class FrequencyProfile:
    """Sums over the rows of each bin.

    Attributes:
        n: Number of rows (bin).
        norms: Σ‖h‖ (bin).
        cosines: Σ cos(h, μ) (bin), rows of zeros left out.
        n_directed: Number of rows that are not zero (bin).
    """

    n: Floats
    norms: Floats
    cosines: Floats
    n_directed: Floats


def occurrences(
    token_ids: npt.NDArray[np.integer], content: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Return how often the token of each row (token) occurs in content.

    Args:
        token_ids: Id of each token (token).
        content: Whether it is content (token).
    """
    _, place = np.unique(token_ids, return_inverse=True)
    counts = np.bincount(place[content], minlength=int(place.max(initial=-1)) + 1)
    found: npt.NDArray[np.int64] = counts[place]
    return found


def frequency_bins(token_ids: npt.NDArray[np.integer], content: npt.NDArray[np.bool_]) -> Bins:
    """Return the bin of every row by how often its token occurs in content.

    Args:
        token_ids: Id of each token (token).
        content: Whether it is content (token).
    """
    counts = occurrences(token_ids, content)
    bins: Bins = (np.searchsorted(FREQUENCIES, np.maximum(counts, 1), side="right") - 1).astype(
        np.int8
    )
    return bins


def profile_groups(
    blocks: Iterable[tuple[Indices, Rows]],
    *,
    bins: Bins,
    norms: Floats,
    mean: Floats,
    bounds: Indices,
) -> Iterator[FrequencyProfile]:
    """Profile the rows of each group of sequences.

    Args:
        blocks: Numbers of the rows of a population, and the rows (token, dim).
        bins: Bin of every row of the layer (token).
        norms: Norm of every row of the layer (token), as they are in the population.
        mean: Mean row μ of the population (dim).
        bounds: First row of every group, and the number of rows (group + 1).

    Yields:
        The profile of each group.
    """
    shape = (len(bounds) - 1, len(FREQUENCIES))
    sums = np.zeros((4, *shape))
    length = float(np.linalg.norm(mean)) or np.nan
    for tokens, rows in blocks:
        groups = np.searchsorted(bounds, tokens, side="right") - 1
        cells = groups * shape[1] + bins[tokens]
        size = norms[tokens]
        directed = size > 0
        along = rows.astype(np.float64) @ (mean / length)
        cosines = np.divide(along, size, out=np.zeros_like(size), where=directed)
        for total, values in zip(sums, (np.ones_like(size), size, cosines, directed), strict=True):
            total += np.bincount(cells, values, minlength=total.size).reshape(shape)
    for group in range(shape[0]):
        yield FrequencyProfile(*sums[:, group])


def profile_of(profiles: Sequence[FrequencyProfile]) -> FrequencyProfile:
    """Return the profile of several groups together."""
    return FrequencyProfile(
        np.sum([one.n for one in profiles], axis=0),
        np.sum([one.norms for one in profiles], axis=0),
        np.sum([one.cosines for one in profiles], axis=0),
        np.sum([one.n_directed for one in profiles], axis=0),
    )
