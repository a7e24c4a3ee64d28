"""Ranks, overlaps and imbalances of neighbourhoods against brute force and closed forms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from analysis.errors import InputError, NonFiniteRowsError, TooFewRowsError
from analysis.neighbor_pairs import compare_neighborhoods, neighborhood_overlap
from analysis.neighbor_ranks import neighbor_ranks
from analysis.neighbors import nearest_neighbors

Rows = npt.NDArray[np.float32]


def gaussian(n: int, dim: int, seed: int = 0) -> Rows:
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


def loader(rows: Rows) -> Callable[[], Rows]:
    return lambda: rows


def brute_force_ranks(
    rows: Rows, targets: npt.NDArray[np.int64], groups: npt.NDArray[np.int64] | None = None
) -> npt.NDArray[np.int64]:
    wide = rows.astype(np.float64)
    squares = np.stack([((row - wide) ** 2).sum(axis=1) for row in wide])
    groups = np.arange(len(rows)) if groups is None else groups
    others = groups[:, None] != groups
    wanted = np.take_along_axis(squares, targets, axis=1)
    nearer = squares[:, None, :] < wanted[:, :, None] * (1 - 1e-12)
    return 1 + (nearer & others[:, None, :]).sum(axis=2)


def random_targets(n: int, count: int, seed: int = 0) -> npt.NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, n, (n, count))


def lattice() -> Rows:
    return np.stack([np.arange(256) // 4**p % 4 for p in range(4)], axis=1).astype(np.float32)


def two_clouds() -> Rows:
    """Two clouds so far apart that products tell nothing of distances within them."""
    rows = gaussian(200, 10)
    rows[::2] += 1e4
    return rows


@pytest.mark.parametrize(
    "rows",
    [gaussian(300, 24), lattice(), two_clouds(), 1e-25 * gaussian(100, 5)],
    ids=["gaussian", "lattice", "two clouds", "tiny"],
)
@pytest.mark.parametrize("block_rows", [64, 1000])
def test_ranks_equal_brute_force(rows: Rows, block_rows: int) -> None:
    targets = random_targets(len(rows), 3)
    ranks = neighbor_ranks(rows, targets, block_rows=block_rows, threads=2)
    np.testing.assert_array_equal(ranks, brute_force_ranks(rows, targets))


def test_own_nearest_neighbours_have_their_ranks_in_order() -> None:
    rows = gaussian(200, 6)
    found = nearest_neighbors(rows, 9)
    ranks = neighbor_ranks(rows, found.indices)
    np.testing.assert_array_equal(ranks, np.tile(np.arange(1, 10), (200, 1)))


def test_rows_of_the_own_group_do_not_count() -> None:
    rows, groups = gaussian(150, 4), np.repeat(np.arange(10), 15)
    targets = nearest_neighbors(rows, 4, groups=groups).indices
    ranks = neighbor_ranks(rows, targets, groups=groups)
    np.testing.assert_array_equal(ranks, np.tile(np.arange(1, 5), (150, 1)))
    np.testing.assert_array_equal(ranks, brute_force_ranks(rows, targets, groups))


@settings(max_examples=30, deadline=None)
@given(
    rows=hnp.arrays(
        np.float32,
        st.tuples(st.integers(2, 30), st.integers(1, 4)),
        elements=st.floats(-100, 100, width=32),
    ),
    block_rows=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_ranks_of_drawn_rows(rows: Rows, block_rows: int, seed: int) -> None:
    targets = random_targets(len(rows), 2, seed)
    ranks = neighbor_ranks(rows, targets, block_rows=block_rows)
    np.testing.assert_array_equal(ranks, brute_force_ranks(rows, targets))


def test_bad_targets_and_rows() -> None:
    with pytest.raises(InputError, match=r"below 5 for each of 5 rows; got shape \(4, 1\)"):
        neighbor_ranks(gaussian(5, 2), np.zeros((4, 1), np.int64))
    with pytest.raises(InputError, match="below 5"):
        neighbor_ranks(gaussian(5, 2), np.full((5, 1), 5))
    with pytest.raises(NonFiniteRowsError, match="1 of 5"):
        neighbor_ranks(np.diag([1, 2, np.nan, 4, 5]).astype(np.float32), random_targets(5, 1))


def test_overlap_counted_by_hand() -> None:
    # On a line 0, 1, 3, 7, two neighbours: {1,2} {0,2} {1,0} {2,1}; with 7 moved to -7, the
    # last row's are {0,1} instead: half in common, all else the same.
    first = nearest_neighbors(np.float32([[0], [1], [3], [7]]), 2)
    second = nearest_neighbors(np.float32([[0], [1], [3], [-7]]), 2)
    np.testing.assert_array_equal(neighborhood_overlap(first, second), [1, 1, 1, 0.5])
    with pytest.raises(InputError, match="equally many neighbours of the same distinct rows"):
        neighborhood_overlap(first, nearest_neighbors(np.float32([[0], [1], [3]]), 2))


def test_a_representation_compared_with_itself_and_with_noise() -> None:
    n, k = 400, 20
    rows = gaussian(n, 5)
    turned = (3 * rows[:, ::-1] + 1).astype(np.float32)
    table = compare_neighborhoods(
        {0: loader(rows), 1: loader(turned), 2: loader(gaussian(n, 5, seed=1))}, k=k
    )
    assert table["neighborhood_overlap"].dims == ("layer", "other_layer")
    overlap = table["neighborhood_overlap"].values
    imbalance = table["information_imbalance"].values
    assert overlap[0, 0] == 1
    assert overlap[0, 1] > 0.999  # float32 may swap the last neighbours of a row
    assert imbalance[0, 0] == pytest.approx(2 / n, rel=1e-12)
    # Of unrelated rows, k/(n - 1) are in common and the mean rank is n/2; the deviations of
    # the means over 400 tokens are about √(k/n)/(k√n) = 0.06 % and 1/√(3n) = 2.9 %.
    assert overlap[0, 2] == pytest.approx(k / (n - 1), abs=0.01)
    assert imbalance[0, 2] == pytest.approx(1, abs=0.1)
    np.testing.assert_allclose(overlap, overlap.T)
    assert table["information_imbalance_stderr"].values[0, 2] == pytest.approx(
        1 / np.sqrt(3 * n), rel=0.1
    )
    assert table["n"] == n


def test_imbalance_tells_which_of_two_holds_the_other() -> None:
    # A plane tells where its points are on either axis, an axis does not tell the plane.
    plane = np.random.default_rng(0).random((500, 2)).astype(np.float32)
    table = compare_neighborhoods({"plane": loader(plane), "axis": loader(plane[:, :1])}, k=5)
    imbalance = table["information_imbalance"]
    downward = imbalance.sel(layer="plane", other_layer="axis").item()
    upward = imbalance.sel(layer="axis", other_layer="plane").item()
    # The nearest in the plane is about 1/(2√n) away: 2 · 500 · 0.014 rows are nearer on the axis.
    assert downward < 0.1 < 0.2 < upward


def test_only_tokens_distinct_everywhere_are_compared() -> None:
    first, second = gaussian(60, 3), gaussian(60, 3, seed=1)
    first[10] = first[3]
    second[20] = second[30]
    table = compare_neighborhoods({0: loader(first), 1: loader(second)}, dim="step", k=4)
    assert table["n"] == 58
    assert table["neighborhood_overlap"].dims == ("step", "other_step")
    kept = np.delete(np.arange(60), [10, 30])
    both = [nearest_neighbors(rows[kept], 4) for rows in (first, second)]
    expected = neighborhood_overlap(*both).mean()
    assert table["neighborhood_overlap"].values[0, 1] == expected


def test_errors_grow_where_sequences_hang_together() -> None:
    # Rows of a sequence are copies up to noise, so that 200 tokens tell no more than 20.
    def coarse(seed: int) -> Rows:
        return np.repeat(gaussian(20, 4, seed), 10, axis=0) + 1e-3 * gaussian(200, 4, seed + 1)

    sequences = np.repeat(np.arange(20), 10)
    pair = {0: loader(coarse(0)), 1: loader(coarse(5))}
    whole = compare_neighborhoods(pair, k=30, sequences=sequences, exclude_own_sequence=True)
    singly = compare_neighborhoods(pair, k=30)
    name = "neighborhood_overlap_stderr"
    assert whole[name].values[0, 1] > 2 * singly[name].values[0, 1]


def test_bad_comparisons() -> None:
    with pytest.raises(InputError, match=r"as many rows each; got \{'a': 5, 'b': 6\}"):
        compare_neighborhoods({"a": loader(gaussian(5, 2)), "b": loader(gaussian(6, 2))})
    with pytest.raises(TooFewRowsError, match="30 neighbours are needed"):
        compare_neighborhoods({"a": loader(gaussian(10, 2))})
