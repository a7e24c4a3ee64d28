"""The neighbour search against brute force, on tame, hostile and drawn rows."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from threadpoolctl import threadpool_info

from analysis.errors import InputError, NonFiniteRowsError, TooFewRowsError
from analysis.neighbor_kernels import compiled
from analysis.neighbors import Neighbors, distinct_rows, nearest_neighbors

Floats = npt.NDArray[np.floating]


def brute_force(
    rows: Floats, k: int, groups: npt.NDArray[np.int64] | None = None
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Neighbours of distinct rows from all differences in float64; ties to the smaller index."""
    wide = rows.astype(np.float64)
    squares = np.stack([((row - wide) ** 2).sum(axis=1) for row in wide])
    groups = np.arange(len(rows)) if groups is None else groups
    squares[groups[:, None] == groups] = np.inf
    indices = np.argsort(squares, axis=1, kind="stable")[:, :k]
    return np.sqrt(np.take_along_axis(squares, indices, axis=1)), indices


def assert_exact(
    found: Neighbors, rows: Floats, k: int, groups: npt.NDArray[np.int64] | None = None
) -> None:
    """Compare to 1e-13: both sum D squares in float64, which rounds by less than D · 1.1e-16."""
    distances, indices = brute_force(rows, k, groups)
    np.testing.assert_allclose(found.distances, distances, rtol=1e-13, atol=0)
    differ = found.indices != indices
    # Only rows at the same distance, up to that rounding, may trade places.
    np.testing.assert_allclose(found.distances[differ], distances[differ], rtol=1e-13, atol=0)


def gaussian(n: int, dim: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


@pytest.mark.parametrize(("n", "dim", "k"), [(600, 16, 2), (500, 3, 20), (300, 200, 64), (3, 5, 2)])
def test_equals_brute_force(n: int, dim: int, k: int) -> None:
    rows = gaussian(n, dim)
    found = nearest_neighbors(rows, k, block_rows=128)
    assert_exact(found, rows, k)
    np.testing.assert_array_equal(found.indices, brute_force(rows, k)[1])
    assert found.n_duplicates == 0
    np.testing.assert_array_equal(found.kept, np.arange(n))


def test_float64_rows_are_not_rounded() -> None:
    rows = gaussian(200, 8).astype(np.float64) + 1e-9 * gaussian(200, 8, seed=1)
    assert_exact(nearest_neighbors(rows, 3), rows, 3)
    close = 1.0 + 1e-12 * gaussian(40, 8).astype(np.float64)
    assert_exact(nearest_neighbors(close, 3), close, 3)


def near_duplicates(gap: float) -> npt.NDArray[np.float32]:
    rows = gaussian(200, 64)
    return np.concatenate([rows, rows + np.float32(gap) * gaussian(200, 64, seed=1)])


@pytest.mark.parametrize("gap", [1e-3, 1e-4, 1e-6])
def test_near_duplicates_keep_their_distance(gap: float) -> None:
    rows = near_duplicates(gap)
    found = nearest_neighbors(rows, 2, block_rows=64)
    assert_exact(found, rows, 2)


def test_rows_one_unit_in_the_last_place_apart() -> None:
    rows = gaussian(150, 32)
    neighbour = rows.copy()
    neighbour[:, 7] = np.nextafter(neighbour[:, 7], np.float32(np.inf))
    both = np.concatenate([rows, neighbour])
    found = nearest_neighbors(both, 2)
    assert_exact(found, both, 2)
    apart = neighbour[:, 7].astype(np.float64) - rows[:, 7]
    np.testing.assert_array_equal(found.distances[:150, 0], apart)
    assert found.n_duplicates == 0


def many_offsets() -> npt.NDArray[np.float32]:
    """Two clouds so far apart that no product of centred rows resolves either."""
    rows = gaussian(300, 24)
    rows[::2] += 1e4
    return rows


def lattice() -> npt.NDArray[np.float32]:
    """Rows of small integers, where most distances are tied."""
    corners = np.random.default_rng(0).permutation(4**5)[:400]
    return np.stack([corners // 4**p % 4 for p in range(5)], axis=1).astype(np.float32)


@pytest.mark.parametrize(
    "rows",
    [
        many_offsets(),
        lattice(),
        near_duplicates(1e-6) * 1e3 + 1e4,
        np.cumsum(gaussian(80, 1), axis=0),
    ],
    ids=["two clouds", "lattice", "offset near-duplicates", "line"],
)
@pytest.mark.parametrize("k", [1, 2, 9])
def test_rows_that_products_cannot_certify_are_refined(
    rows: npt.NDArray[np.float32], k: int
) -> None:
    found = nearest_neighbors(rows, k, block_rows=100)
    assert_exact(found, rows, k)


def test_refinement_is_reached_and_ties_go_to_the_smaller_index() -> None:
    assert nearest_neighbors(many_offsets(), 2).n_refined > 250
    rows = lattice()
    found = nearest_neighbors(rows, 3)
    assert found.n_refined > 50
    np.testing.assert_array_equal(found.indices, brute_force(rows, 3)[1])


def test_tame_rows_are_certified() -> None:
    assert nearest_neighbors(gaussian(2000, 64), 2).n_refined == 0


def test_a_few_massive_rows_do_not_loosen_the_bound_of_the_others() -> None:
    rows = gaussian(1500, 48)
    rows[:10, 3] += 3000.0
    found = nearest_neighbors(rows, 2)
    assert_exact(found, rows, 2)
    assert found.n_refined <= 10


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e30])
def test_scale_moves_nothing_but_distances(scale: float) -> None:
    exponent = np.float32(2.0) ** round(float(np.log2(scale)))
    rows = gaussian(300, 20)
    found = nearest_neighbors(rows * exponent, 4)
    plain = nearest_neighbors(rows, 4)
    np.testing.assert_array_equal(found.indices, plain.indices)
    np.testing.assert_array_equal(found.distances, plain.distances * float(exponent))


def test_duplicates_are_dropped_before_the_search() -> None:
    rows = gaussian(100, 12)
    copies = np.concatenate([rows[:3], rows, rows[40:50], rows[:1]])
    found = nearest_neighbors(copies, 2)
    plain = nearest_neighbors(rows, 2)
    assert found.n_duplicates == 14
    np.testing.assert_array_equal(found.kept, np.arange(100) + np.where(np.arange(100) < 3, 0, 3))
    np.testing.assert_array_equal(found.distances, plain.distances)
    np.testing.assert_array_equal(found.indices, plain.indices)


def test_zeros_of_either_sign_are_equal() -> None:
    rows = np.array([[0.0, 1.0], [-0.0, 1.0], [0.0, -0.0], [2.0, 0.0]], np.float32)
    np.testing.assert_array_equal(distinct_rows(rows), [0, 2, 3])
    np.testing.assert_array_equal(distinct_rows(rows.astype(np.float64)), [0, 2, 3])


def test_neighbours_of_the_same_group_are_left_out() -> None:
    # Three sequences that walk along parallel lines: a row's nearest are its own sequence's.
    groups = np.repeat(np.arange(3), 50)
    rows = np.stack([np.tile(np.arange(50) * 0.1, 3), groups * 5.0], axis=1).astype(np.float32)
    rows += 0.01 * gaussian(150, 2)
    found = nearest_neighbors(rows, 7, groups=groups, block_rows=40)
    assert_exact(found, rows, 7, groups)
    assert (groups[found.indices] != groups[:, None]).all()


finite = st.floats(-1e3, 1e3, width=32)
drawn_rows = hnp.arrays(
    np.float32, st.tuples(st.integers(8, 40), st.integers(1, 6)), elements=finite
)


@settings(max_examples=60, deadline=None)
@given(
    rows=drawn_rows,
    k=st.integers(1, 4),
    block_rows=st.integers(1, 50),
    threads=st.integers(1, 3),
    data=st.data(),
)
def test_result_depends_on_neither_blocks_nor_threads_nor_order(
    rows: npt.NDArray[np.float32], k: int, block_rows: int, threads: int, data: st.DataObject
) -> None:
    rows = rows[distinct_rows(rows)]
    if len(rows) <= k:
        with pytest.raises(TooFewRowsError):
            nearest_neighbors(rows, k)
        return
    found = nearest_neighbors(rows, k, block_rows=block_rows, threads=threads)
    whole = nearest_neighbors(rows, k)
    np.testing.assert_array_equal(found.distances, whole.distances)
    np.testing.assert_array_equal(found.indices, whole.indices)
    assert_exact(found, rows, k)
    order = np.array(data.draw(st.permutations(range(len(rows)))))
    shuffled = nearest_neighbors(rows[order], k, block_rows=block_rows)
    np.testing.assert_array_equal(shuffled.distances, whole.distances[order])


def test_rows_below_the_normal_range_are_told_apart() -> None:
    smallest = np.float32(2.0**-149)
    rows = np.array([[smallest], [0.0], [3 * smallest]])
    found = nearest_neighbors(rows, 1)
    np.testing.assert_array_equal(found.distances[:, 0], np.array([1, 1, 2]) * 2.0**-149)
    np.testing.assert_array_equal(found.indices[:, 0], [1, 0, 0])


def test_rows_need_not_be_contiguous_or_writable() -> None:
    rows = gaussian(120, 20)
    wanted = nearest_neighbors(np.ascontiguousarray(rows[::2, ::2]), 3)
    frozen = rows[::2, ::2].copy()
    frozen.flags.writeable = False
    for variant in (rows[::2, ::2], frozen, np.asfortranarray(rows[::2, ::2])):
        np.testing.assert_array_equal(nearest_neighbors(variant, 3).distances, wanted.distances)


def test_blas_threads_are_restored() -> None:
    before = [library["num_threads"] for library in threadpool_info()]
    nearest_neighbors(gaussian(100, 8), 2, threads=2)
    assert [library["num_threads"] for library in threadpool_info()] == before


def test_too_few_rows() -> None:
    with pytest.raises(
        TooFewRowsError,
        match=r"5 neighbours are needed, .* only 3 .*\(4 rows, 4 of them distinct\)",
    ):
        nearest_neighbors(gaussian(4, 3), 5)
    copies = np.ones((50, 3), np.float32)
    with pytest.raises(TooFewRowsError, match=r"only 0 .*\(50 rows, 1 of them distinct\)"):
        nearest_neighbors(copies, 1)
    with pytest.raises(TooFewRowsError, match="own group left out"):
        nearest_neighbors(gaussian(20, 3), 2, groups=np.r_[np.zeros(19, int), 1])
    with pytest.raises(TooFewRowsError, match="0 rows"):
        nearest_neighbors(np.empty((0, 3), np.float32), 1)


def test_fewer_neighbours_where_they_will_do() -> None:
    rows = gaussian(6, 3)
    found = nearest_neighbors(rows, 100, minimum=2)
    assert_exact(found, rows, 5)
    with pytest.raises(TooFewRowsError, match=r"6 neighbours are needed, .* only 5"):
        nearest_neighbors(rows, 100, minimum=6)
    for rows in (np.ones((4, 3), np.float32), np.empty((0, 3), np.float32)):
        assert nearest_neighbors(rows, 100, minimum=0).distances.shape == (len(rows[:1]), 0)


def test_bad_input() -> None:
    rows = gaussian(30, 4)
    rows[3, 2] = np.nan
    rows[9, 1] = np.inf
    with pytest.raises(NonFiniteRowsError, match="2 of 30 distinct rows"):
        nearest_neighbors(rows, 2)
    with pytest.raises(InputError, match=r"got int64 of shape \(3, 2\)"):
        nearest_neighbors(np.ones((3, 2), np.int64), 1)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(InputError, match="at least 1, got 0"):
        nearest_neighbors(gaussian(5, 2), 0)
    with pytest.raises(InputError, match=r"got shape \(4,\)"):
        nearest_neighbors(gaussian(5, 2), 1, groups=np.arange(4))


def test_kernels_compile_where_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_plainly = numba.njit

    def without_cache(**options: object) -> object:
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return compile_plainly(**options)

    monkeypatch.setattr(numba, "njit", without_cache)
    halve = compiled()(lambda number: number / 2)
    assert halve(3.0) == 1.5
