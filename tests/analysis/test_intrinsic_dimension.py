"""Intrinsic dimension against closed forms, known manifolds and scikit-dimension."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import skdim
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.metrics.intrinsic_dimension import (
    GRIDE_SCALES,
    gride,
    mada,
    mle,
    mle_mean,
    mom,
    two_nn,
    two_nn_lowest_fifth,
    two_nn_mle,
)
from analysis.neighbors import Neighbors, nearest_neighbors

Rows = npt.NDArray[np.float32]


def neighbors_at(distances: npt.NDArray[np.float64]) -> Neighbors:
    n = len(distances)
    return Neighbors(distances, np.zeros(distances.shape, np.int64), np.arange(n), 0, 0)


def linear_gaussian(n: int, dim: int, width: int, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((width, dim)))[0]
    return (rng.standard_normal((n, dim)) @ basis.T).astype(np.float32)


def sphere(n: int, dim: int, seed: int = 0) -> Rows:
    rows = np.random.default_rng(seed).standard_normal((n, dim + 1))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def swiss_roll(n: int, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    angle = 1.5 * np.pi * (1 + 2 * rng.random(n))
    points = np.stack([angle * np.cos(angle), 21 * rng.random(n), angle * np.sin(angle)], axis=1)
    return points.astype(np.float32)


def noisy_line(n: int, seed: int = 0) -> Rows:
    """A line of length 100 n with noise of 0.1: neighbours are 100 apart, far beyond the noise."""
    rng = np.random.default_rng(seed)
    rows = 0.1 * rng.standard_normal((n, 10))
    rows[:, 0] += 100.0 * n * rng.random(n)
    return rows.astype(np.float32)


def test_two_nn_of_ratios_worked_out_by_hand() -> None:
    # m = 2 for all of 20 rows, so log m = log 2 throughout.
    found = neighbors_at(np.tile([1.0, 2.0], (20, 1)))
    # (20 - 1) / (20 log 2)
    assert two_nn_mle(found) == pytest.approx(19 / (20 * math.log(2)), rel=1e-14)
    # The slope is the mean of -log(1 - i/20), i = 1..18, over log 2, where
    # Π (1 - i/20) = 19! / (1! · 20^18).
    mean = (18 * math.log(20) - math.lgamma(20)) / 18
    assert two_nn(found) == pytest.approx(mean / math.log(2), rel=1e-13)


@pytest.mark.parametrize("dim", [1, 2, 5.5])
def test_two_nn_recovers_the_exponent_of_a_pareto_law(dim: float) -> None:
    # Quantiles of F(m) = 1 - m^-d at i/n, where the fitted points lie on the line exactly.
    n = 2000
    ratios = (1 - np.arange(n) / n) ** (-1 / dim)
    distances = np.stack([np.ones(n), np.roll(ratios, -1)], axis=1)
    distances[-1, 1] = 1e6  # i = n is infinite, and among the 10 % left out
    assert two_nn(neighbors_at(distances)) == pytest.approx(dim, rel=1e-12)
    assert two_nn_lowest_fifth(neighbors_at(distances)) == pytest.approx(dim, rel=1e-12)


@pytest.mark.parametrize(
    ("rows", "dim"),
    [
        (linear_gaussian(4000, 2, 50), 2),
        (linear_gaussian(4000, 5, 50), 5),
        (sphere(4000, 3), 3),
        (swiss_roll(4000), 2),
        (noisy_line(4000), 1),
    ],
    ids=["plane", "5-space", "3-sphere", "swiss roll", "noisy line"],
)
def test_two_nn_of_known_manifolds(rows: Rows, dim: int) -> None:
    # The maximum-likelihood form has relative deviation 1/√n = 1.6 %, the fit about twice that.
    found = nearest_neighbors(rows, 2)
    assert two_nn(found) == pytest.approx(dim, rel=0.08)
    assert two_nn_mle(found) == pytest.approx(dim, rel=0.06)
    assert two_nn_lowest_fifth(found) == pytest.approx(dim, rel=0.2)


@pytest.mark.parametrize("width", [10, 40])
def test_two_nn_equals_scikit_dimension(width: int) -> None:
    rows = linear_gaussian(1500, 6, width)
    found = nearest_neighbors(rows, 2)
    wide = rows.astype(np.float64)
    # Above 25 columns it takes distances from inner products, good to about 1e-7 here.
    assert two_nn(found) == pytest.approx(skdim.id.TwoNN().fit(wide).dimension_, rel=1e-7)
    fifth = skdim.id.TwoNN(discard_fraction=0.7999).fit(wide).dimension_
    assert two_nn_lowest_fifth(found) == pytest.approx(fifth, rel=1e-7)
    with np.errstate(divide="ignore"):  # it takes log(1 - n/n) on the way
        whole = skdim.id.TwoNN(discard_fraction=0, method="mle").fit(wide).dimension_
    assert two_nn_mle(found) == pytest.approx(whole, rel=1e-7)


def test_exact_copies_change_nothing() -> None:
    rows = linear_gaussian(2000, 6, 64)
    copies = np.concatenate([rows, rows[:200]])
    plain, found = nearest_neighbors(rows, 2), nearest_neighbors(copies, 2)
    assert found.n_duplicates == 200
    assert two_nn(found) == two_nn(plain)
    assert two_nn_mle(found) == two_nn_mle(plain)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 1000),
    scale=st.floats(1e-6, 1e6),
    shift=st.floats(-100, 100),
)
def test_rotation_translation_and_scale_do_not_matter(
    seed: int, scale: float, shift: float
) -> None:
    rows = linear_gaussian(200, 4, 12).astype(np.float64)
    rotation = np.linalg.qr(np.random.default_rng(seed).standard_normal((12, 12)))[0]
    plain = nearest_neighbors(rows, 2)
    # In float64 a shift of 100 moves distances by about 1e-14, of which the nearest is 1e-2.
    moved = nearest_neighbors((rows @ rotation + shift) * scale, 2)
    for estimate in (two_nn, two_nn_mle, two_nn_lowest_fifth):
        assert estimate(moved) == pytest.approx(estimate(plain), rel=1e-9, nan_ok=True)


def test_undefined_estimates_are_nan() -> None:
    few = neighbors_at(np.tile([1.0, 2.0], (9, 1)))
    assert math.isnan(two_nn(few))
    assert math.isnan(two_nn_mle(few))
    assert math.isnan(two_nn_lowest_fifth(neighbors_at(np.tile([1.0, 2.0], (49, 1)))))
    tied = neighbors_at(np.ones((100, 2)))
    assert math.isnan(two_nn(tied))
    assert math.isnan(two_nn_mle(tied))


def test_local_estimates_of_distances_worked_out_by_hand() -> None:
    # Distances r_j = j^(1/2): the j-th of a plane with exactly j rows within r_j.
    planar = neighbors_at(np.tile(np.sqrt(np.arange(1.0, 129.0)), (10, 1)))
    # 1/19 Σ_{j<20} log √(20/j) = (19 log 20 - log 19!) / 38 = 1/d for every row.
    by_hand = 38 / (19 * math.log(20) - math.lgamma(20))
    assert mle(planar) == pytest.approx(by_hand, rel=1e-13)
    assert mle_mean(planar) == pytest.approx(by_hand, rel=1e-13)
    # log 2 / log(√20/√10) = 2.
    assert mada(planar) == pytest.approx(2, rel=1e-13)
    mean = np.sqrt(np.arange(1, 101)).mean()  # against w = √100
    assert mom(planar) == pytest.approx(mean / (10 - mean), rel=1e-13)


def test_gride_is_the_maximum_of_its_likelihood() -> None:
    found = nearest_neighbors(linear_gaussian(400, 3, 10), 128)
    n = len(found.distances)
    curve = gride(found)
    assert len(curve) == len(GRIDE_SCALES) == 7
    assert curve[0] == pytest.approx(two_nn_mle(found), rel=1e-12)

    def likelihood(dim: float, k: int) -> float:
        ratios = found.distances[:, 2 * k - 1] / found.distances[:, k - 1]
        terms = (k - 1) * np.log(ratios**dim - 1) - ((2 * k - 1) * dim + 1) * np.log(ratios)
        return float((n - 1) * math.log(dim) + terms.sum())

    for dim, k in zip(curve, GRIDE_SCALES, strict=True):
        # A step of 1e-3 lowers a likelihood of curvature about -n/d² by some 1e-4.
        best = likelihood(dim, k)
        assert likelihood(dim * (1 - 1e-3), k) < best > likelihood(dim * (1 + 1e-3), k)


def test_gride_recovers_the_dimension_on_every_scale() -> None:
    # On a torus without boundary, density is constant: 2 circles of radius 1 in 4 dimensions.
    angles = 2 * np.pi * np.random.default_rng(0).random((4000, 2))
    rows = np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    # Relative deviation √(2/(k n)) or less, but curvature adds a percent at 128 neighbours.
    np.testing.assert_allclose(gride(nearest_neighbors(rows, 128)), 2, rtol=0.06)


def test_local_estimates_equal_scikit_dimension() -> None:
    rows = linear_gaussian(600, 6, 20)
    found = nearest_neighbors(rows, 100)
    wide = rows.astype(np.float64)
    reference = skdim.id.MLE().fit(wide, n_neighbors=20)
    assert mle(found) == pytest.approx(reference.dimension_, rel=1e-9)
    assert mle_mean(found) == pytest.approx(reference.dimension_pw_.mean(), rel=1e-9)
    assert mom(found) == pytest.approx(skdim.id.MOM().fit(wide).dimension_, rel=1e-9)
    assert mada(found) == pytest.approx(skdim.id.MADA().fit(wide).dimension_, rel=1e-9)


@pytest.mark.parametrize("estimate", [mle, mle_mean, mom, mada])
@pytest.mark.parametrize(
    ("rows", "dim"),
    [(linear_gaussian(3000, 2, 30), 2), (sphere(3000, 3), 3), (noisy_line(3000), 1)],
    ids=["plane", "3-sphere", "noisy line"],
)
def test_local_estimates_of_known_manifolds(
    estimate: Callable[[Neighbors], float], rows: Rows, dim: int
) -> None:
    # Averages of biased local ratios: within a tenth or so of the dimension, not closer.
    assert estimate(nearest_neighbors(rows, 100)) == pytest.approx(dim, rel=0.15)


def test_too_few_neighbours_or_all_tied_are_nan() -> None:
    short = neighbors_at(np.tile(np.arange(1.0, 20.0), (50, 1)))
    tied = neighbors_at(np.ones((50, 128)))
    for estimate in (mle, mle_mean, mom, mada):
        assert math.isnan(estimate(short))
        assert math.isnan(estimate(tied))
    curve = gride(short)
    np.testing.assert_array_equal(np.isnan(curve), [False] * 4 + [True] * 3)
    assert np.isnan(gride(tied)).all()


def test_a_tie_is_left_out_of_local_means_alone() -> None:
    distances = np.tile(np.sqrt(np.arange(1.0, 129.0)), (11, 1))
    distances[0] = 1.0
    assert mada(neighbors_at(distances)) == pytest.approx(2, rel=1e-13)
    # The tied row is a local dimension without bound, so an inverse of 0.
    assert mle(neighbors_at(distances)) == pytest.approx(
        mle(neighbors_at(distances[1:])) * 11 / 10, rel=1e-13
    )
