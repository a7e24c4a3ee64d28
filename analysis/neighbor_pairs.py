"""How alike the neighbourhoods of the same tokens are in two layers, steps or models.

Both comparisons read ranks only: no rotation or scale of a representation matters. They are taken
over the tokens whose rows are distinct in every representation, since a copy would be the
nearest neighbour in one and not in another.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import xarray as xr

from analysis.errors import InputError
from analysis.metrics.metric import STDERR
from analysis.neighbor_ranks import neighbor_ranks
from analysis.neighbors import Neighbors, distinct_rows, nearest_neighbors
from store.schema import LAYER, OTHER

Rows = npt.NDArray[np.floating]
Integers = npt.NDArray[np.integer]
Floats = npt.NDArray[np.float64]

OVERLAP_NEIGHBORS: Final = 30
"""Neighbours compared by `compare_neighborhoods`, as in the paper on neighbourhood overlap."""


NEIGHBOR_PAIRS: Final[dict[str, str]] = {
    "neighborhood_overlap": "share of neighbours in common",
    "information_imbalance": "information imbalance",
}
"""What ``compare_neighborhoods`` measures, and how it is called on an axis."""


def neighborhood_overlap(first: Neighbors, second: Neighbors) -> Floats:
    """Return the share of neighbours that each token has in both of two representations.

    Args:
        first: Neighbours of the tokens in one representation.
        second: As many neighbours of the same tokens in another.

    Returns:
        Shares between 0 and 1 (token); by chance k/(n - 1).

    Raises:
        InputError: If the two are of different tokens, or of different numbers of neighbours.

    Reference:
        Doimo, Glielmo, Ansuini & Laio, Hierarchical nucleation in deep neural networks, NeurIPS
        (2020), equation 1.
    """
    if first.indices.shape != second.indices.shape or (first.kept != second.kept).any():
        raise InputError(
            "an overlap needs equally many neighbours of the same distinct rows; got "
            f"{first.indices.shape} and {second.indices.shape} (token, neighbor)"
        )
    n, k = first.indices.shape
    offsets = n * np.arange(n)[:, None]
    common = np.isin(first.indices + offsets, second.indices + offsets, assume_unique=True)
    shares: Floats = common.sum(axis=1) / k
    return shares


def compare_neighborhoods(
    representations: Mapping[Hashable, Callable[[], Rows]],
    *,
    dim: str = LAYER,
    k: int = OVERLAP_NEIGHBORS,
    sequences: Integers | None = None,
    exclude_own_sequence: bool = False,
    kinds: Sequence[Hashable] | None = None,
    threads: int = 1,
) -> xr.Dataset:
    """Compare every representation of some tokens with every other.

    Args:
        representations: How to load the rows (token, dim) of each, of the same tokens; each is
            loaded three times and let go.
        dim: What the representations are, as in ``layer`` or ``step``.
        k: Neighbours whose overlap is measured.
        sequences: Sequence of each row (token), within which errors may depend on each other.
        exclude_own_sequence: Whether neighbours are sought in other sequences only.
        kinds: Kind of each representation, such as its model; pairs of one kind are left out.
        threads: Threads of the search.

    Returns:
        By (dim, other_dim), with standard errors over sequences: ``neighborhood_overlap``, the
        mean share of k neighbours in common, between 0 and 1; and ``information_imbalance``,
        2/n times the mean rank in the other of a token's nearest neighbour in the first, from
        2/n, where the first tells all about the other, to 1, where it tells nothing. ``n`` is the
        number of tokens whose rows are distinct in every representation.

    Raises:
        TooFewRowsError: If fewer than k neighbours of some token remain.
        InputError: If the representations have different numbers of rows.

    Reference:
        Doimo et al., NeurIPS (2020); Glielmo, Zeni, Cheng, Csányi & Laio, Ranking the
        information content of distance measures, PNAS Nexus 1 (2022), equation 3.
    """
    shared = _shared_tokens(representations)
    clusters = shared if sequences is None else sequences[shared]
    groups = clusters if exclude_own_sequence else None
    found = [
        nearest_neighbors(load()[shared], k, groups=groups, threads=threads)
        for load in representations.values()
    ]
    nearest = np.stack([neighbors.indices[:, 0] for neighbors in found], axis=1)
    count, n = len(found), len(shared)
    overlaps, imbalances = np.empty((2, count, count, n))
    for j, load in enumerate(representations.values()):
        ranks = neighbor_ranks(load()[shared], nearest, groups=groups, threads=threads)
        imbalances[:, j] = 2 / n * ranks.T
        for i in range(count):
            overlaps[i, j] = neighborhood_overlap(found[i], found[j])
    if kinds is not None:
        alike = np.array([[one == other for other in kinds] for one in kinds])
        overlaps[alike] = imbalances[alike] = np.nan
    dims = (dim, OTHER + dim)
    table = xr.Dataset({"n": n}, {name: list(representations) for name in dims})
    for (name, about), values in zip(NEIGHBOR_PAIRS.items(), (overlaps, imbalances), strict=True):
        attrs = {"long_name": about, "units": "1"}
        table[name] = (dims, values.mean(axis=-1), attrs)
        attrs = {"long_name": f"standard error of {about}", "units": "1"}
        table[name + STDERR] = (dims, _clustered_error(values, clusters), attrs)
    return table


def _shared_tokens(
    representations: Mapping[Hashable, Callable[[], Rows]],
) -> npt.NDArray[np.int64]:
    """Return the tokens whose rows are first of their kind in every representation."""
    counts: dict[Hashable, int] = {}
    shared: npt.NDArray[np.int64] | None = None
    for label, load in representations.items():
        rows = np.ascontiguousarray(load())
        counts[label] = len(rows)
        kept = distinct_rows(rows)
        shared = kept if shared is None else np.intersect1d(shared, kept, assume_unique=True)
    if shared is None or len(set(counts.values())) > 1:
        raise InputError(f"representations of the same tokens have as many rows each; got {counts}")
    return shared


def _clustered_error(values: Floats, clusters: Integers) -> Floats:
    """Return the standard error of the mean over tokens that depend on each other in clusters.

    With residuals e of n tokens, √Σ_c (Σ_{i∈c} e_i)² / n.
    """
    order = np.argsort(clusters, kind="stable")
    starts = np.flatnonzero(np.diff(clusters[order], prepend=clusters[order[0]] - 1))
    residuals = values - values.mean(axis=-1, keepdims=True)
    sums = np.add.reduceat(residuals[..., order], starts, axis=-1)
    error: Floats = np.sqrt((sums**2).sum(axis=-1)) / values.shape[-1]
    return error
