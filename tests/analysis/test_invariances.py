"""What must not change, and data that are hostile, for metrics of sequences and of neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr

from analysis import compute_metrics
from analysis.metrics.intrinsic_dimension import (
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

Rows = npt.NDArray[np.floating]
Estimator = Callable[[Neighbors], float | Rows]

SEQUENCE_METRICS = ["curvature", "prompt_entropy", "prompt_entropy_2", "prompt_entropy_by_order"]
ESTIMATORS = (two_nn, two_nn_mle, two_nn_lowest_fifth, gride, mle, mle_mean, mom, mada)
LENGTH = 25


def paths(seed: int = 0) -> Rows:
    """Ten sequences that wander, in eight dimensions."""
    steps = np.random.default_rng(seed).standard_normal((10, LENGTH, 8)) * np.arange(1, 9) ** -0.5
    return (steps.cumsum(axis=1) + 3).reshape(-1, 8)


def of_sequences(rows: Rows) -> xr.Dataset:
    n = len(rows)
    coordinates = {
        "sequence": ("token", np.arange(n) // LENGTH),
        "position": ("token", np.arange(n) % LENGTH),
        "special": ("token", np.zeros(n, bool)),
    }
    array = xr.DataArray(rows, dims=("token", "dim"), coords=coordinates)
    return compute_metrics(array, SEQUENCE_METRICS, populations=["all"], causal=False, errors=False)


@pytest.mark.parametrize("factor", [1e-20, 0.3, 1e15])
def test_shapes_of_sequences_know_no_scale_and_no_axes(factor: float) -> None:
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((8, 8)))[0]
    before, after = of_sequences(paths()), of_sequences(paths() @ turn * factor)
    for name in SEQUENCE_METRICS:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-9, err_msg=name)


def test_a_path_turns_alike_from_anywhere_and_backwards() -> None:
    rows = paths()
    before = of_sequences(rows)["curvature"].item()
    assert of_sequences(rows + 40.0)["curvature"].item() == pytest.approx(before, rel=1e-9)
    backwards = rows.reshape(10, LENGTH, 8)[:, ::-1].reshape(-1, 8)
    assert of_sequences(backwards)["curvature"].item() == pytest.approx(before, rel=1e-12)
    by_definition = []
    for path in rows.reshape(10, LENGTH, 8):
        steps = np.diff(path, axis=0)
        steps /= np.linalg.norm(steps, axis=1, keepdims=True)
        by_definition.append(np.arccos((steps[1:] * steps[:-1]).sum(axis=1)).mean())
    assert before == pytest.approx(np.mean(by_definition), rel=1e-9)


def test_sets_of_rows_have_no_order() -> None:
    rows = paths().reshape(10, LENGTH, 8)
    mixed = np.random.default_rng(2).permuted(rows, axis=1)
    order = np.random.default_rng(2).permutation(LENGTH)
    before, after = of_sequences(rows.reshape(-1, 8)), of_sequences(rows[:, order].reshape(-1, 8))
    for name in SEQUENCE_METRICS[1:]:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-9)
    assert after["curvature"].item() != pytest.approx(before["curvature"].item(), rel=1e-3)
    # Exchanging values between the rows of a sequence is another set of rows.
    others = of_sequences(mixed.reshape(-1, 8))["prompt_entropy"].item()
    assert others != pytest.approx(before["prompt_entropy"].item(), rel=1e-3)


def cloud(n: int = 600) -> Rows:
    rng = np.random.default_rng(3)
    return rng.standard_normal((n, 4)) @ rng.standard_normal((4, 12))


@pytest.mark.parametrize("estimate", ESTIMATORS)
def test_every_estimator_knows_no_axes_origin_scale_or_order(estimate: Estimator) -> None:
    rng = np.random.default_rng(4)
    rows = cloud()
    turn = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    moved = rng.permutation((rows @ turn + 30) * 1e-4)
    # A shift of 30 moves distances by about 1e-14, of which the nearest is 1e-2.
    found, expected = (np.asarray(estimate(nearest_neighbors(a, 128))) for a in (moved, rows))
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def as_bfloat16(rows: Rows) -> npt.NDArray[np.float32]:
    """Round to nearest, ties to even, as PyTorch does."""
    bits = rows.astype(np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return (rounded << np.uint32(16)).view(np.float32)


@pytest.mark.parametrize("estimate", ESTIMATORS)
def test_ties_of_bfloat16_are_no_obstacle(estimate: Estimator) -> None:
    # Neighbours are about 1 apart and values about 2: rounding moves each by up to 2⁻⁸.
    rows = cloud()
    plain, rounded = (
        nearest_neighbors(a.astype(np.float32), 128) for a in (rows, as_bfloat16(rows))
    )
    assert rounded.n_duplicates == 0
    np.testing.assert_allclose(estimate(rounded), estimate(plain), rtol=0.1)


def test_a_grid_of_few_values_is_deduplicated_and_gives_a_number_or_none() -> None:
    # Twelve values of two dimensions: most rows are copies, and all distances tie.
    grid = np.random.default_rng(5).integers(0, 4, (500, 2)).astype(np.float32)
    found = nearest_neighbors(grid, 2)
    assert len(found.kept) == 16
    assert found.n_duplicates == 484
    assert math.isnan(two_nn(found))
    array = xr.DataArray(grid, dims=("token", "dim"))
    results = compute_metrics(array, ["two_nn", "mle", "gride"])
    assert results["two_nn"].isnull().all()
    # Second and fourth neighbours of a corner differ, first and second do not.
    assert results["gride"].sel(scale=1).isnull().all()
    assert (results["gride"].sel(scale=2) > 0).all()
    assert (results["neighbors_n_duplicates"] == 484).all()


@pytest.mark.parametrize("copies", [2, 4])
def test_products_of_cantor_sets_have_their_broken_dimension(copies: int) -> None:
    # Points Σ 2b_i/3^i with fair bits b_i: each set has the dimension log 2/log 3 = 0.63.
    bits = np.random.default_rng(6).integers(0, 2, (4000, copies, 30))
    points = (2 * bits * 3.0 ** -np.arange(1, 31)).sum(axis=-1)
    turn = np.linalg.qr(np.random.default_rng(7).standard_normal((20, copies)))[0]
    found = nearest_neighbors(points @ turn.T, 128)
    dimension = copies * math.log(2) / math.log(3)
    # Gaps on every scale make ratios of distances uneven, which averages over scales.
    assert two_nn_mle(found) == pytest.approx(dimension, rel=0.15)
    assert mle(found) == pytest.approx(dimension, rel=0.15)
    assert np.mean(gride(found)) == pytest.approx(dimension, rel=0.15)
