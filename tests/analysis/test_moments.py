from __future__ import annotations

import copy

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from analysis.errors import AnalysisError
from analysis.moments import CentralMoments, Directions, Moments, merged

Rows = npt.NDArray[np.float64]


def moments_of(rows: Rows) -> Moments:
    """Statistics of one sequence."""
    norms = np.linalg.norm(rows, axis=1)
    units = rows / norms[:, None]
    directions = Directions(len(rows), units.sum(0), (units**2).sum(0))
    directions.add_sequences((units.sum(0) ** 2).sum()[None], np.array([len(rows)]))
    return Moments(CentralMoments.of(rows, scatter=True), directions, [norms])


def assert_same(left: Moments, right: Moments) -> None:
    # Both sum the same numbers in another order. The elements are below 100 and at most 30 of
    # them are added, so that a fourth power is below 3e9 and its rounding below 3e9 * 30 * eps.
    assert left.central.n == right.central.n
    for name in ("mean", "squares", "cubes", "quartics", "scatter"):
        a, b = getattr(left.central, name), getattr(right.central, name)
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-4 if name == "quartics" else 1e-6)
    for name, value in vars(left.directions).items():
        np.testing.assert_allclose(value, getattr(right.directions, name), rtol=1e-9, atol=1e-9)
    assert sorted(np.concatenate(left.norms)) == sorted(np.concatenate(right.norms))


elements = st.floats(0.5, 100, width=32)
row_sets = st.lists(
    st.integers(1, 10).flatmap(lambda n: arrays(np.float64, (n, 3), elements=elements)),
    min_size=3,
    max_size=3,
)


@given(row_sets)
@settings(max_examples=60, deadline=None)
def test_merging_is_associative_and_commutative(sets: list[Rows]) -> None:
    a, b, c = map(moments_of, sets)
    left = merged([merged([a, b], 3, scatter=True), c], 3, scatter=True)
    right = merged([a, merged([b, c], 3, scatter=True)], 3, scatter=True)
    assert_same(left, right)
    assert_same(left, merged([c, a, b], 3, scatter=True))


@given(row_sets)
@settings(max_examples=60, deadline=None)
def test_merging_equals_the_statistics_of_all_rows_at_once(sets: list[Rows]) -> None:
    total = merged(map(moments_of, sets), 3, scatter=True).central
    direct = CentralMoments.of(np.concatenate(sets), scatter=True)
    assert total.n == direct.n
    for name in ("mean", "squares", "cubes", "quartics", "scatter"):
        atol = 1e-4 if name == "quartics" else 1e-6
        np.testing.assert_allclose(
            getattr(total, name), getattr(direct, name), rtol=1e-9, atol=atol
        )


def test_zero_is_the_unit_of_merging() -> None:
    rows = np.array([[1.0, 2.0], [3.0, 5.0]])
    plain = moments_of(rows)
    before = copy.deepcopy(plain)
    assert_same(merged([Moments.zero(2, scatter=True), plain], 2, scatter=True), plain)
    plain.merge(Moments.zero(2, scatter=True))
    assert_same(plain, before)


def test_central_sums_by_hand() -> None:
    # Column 1, 2, 6: mean 3, deviations -2, -1, 3.
    # Squares 4 + 1 + 9 = 14; cubes -8 - 1 + 27 = 18; quartics 16 + 1 + 81 = 98.
    parts = [CentralMoments.of(np.array([[value]]), scatter=True) for value in (1.0, 2.0, 6.0)]
    total = CentralMoments.zero(1, scatter=True)
    for part in parts:
        total.merge(part)
    assert total.mean == pytest.approx(3)
    assert total.squares == pytest.approx(14)
    assert total.cubes == pytest.approx(18)
    assert total.quartics == pytest.approx(98)


def test_sequences_by_hand() -> None:
    # Sequence one: e1, e1 (sum 2 e1, cosine 1); sequence two: e1, e2, e2 (sum e1 + 2 e2, pairs
    # 0, 0, 1, cosine 1/3); sequence three: one row, without pairs.
    directions = Directions.zero(2)
    sums = np.array([[2.0, 0.0], [1.0, 2.0], [0.0, 1.0]])
    directions.add_sequences((sums**2).sum(axis=1), np.array([2, 3, 1]))
    assert directions.within == pytest.approx(1 + 1 / 3)
    assert directions.n_within == 2
    assert directions.sequence_squares == pytest.approx(4 + 5 + 1)
    assert directions.sequence_pairs == pytest.approx(4 + 9 + 1)
    assert directions.n_sequences == 3


def test_a_mean_of_ten_thousand_spreads_keeps_the_variance() -> None:
    # The one-pass formula in float32 returns -8 for such a column.
    rng = np.random.default_rng(0)
    rows = 1e4 + rng.standard_normal((4000, 1))
    total = CentralMoments.zero(1, scatter=True)
    for start in range(0, 4000, 7):
        total.merge(CentralMoments.of(rows[start : start + 7], scatter=True))
    assert total.squares[0] / 4000 == pytest.approx(rows.var(), rel=1e-10)


def test_rows_of_another_width_are_refused() -> None:
    with pytest.raises(AnalysisError, match=r"rows of width 3 into rows of width 2"):
        CentralMoments.zero(2, scatter=False).merge(CentralMoments.zero(3, scatter=False))


def test_a_scatter_cannot_come_from_vectors() -> None:
    vectors = CentralMoments.of(np.ones((1, 2)), scatter=False)
    with pytest.raises(AnalysisError, match="without a scatter"):
        CentralMoments.zero(2, scatter=True).merge(vectors)
