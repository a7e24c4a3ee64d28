"""Each metric of moments against closed forms, independent programs and invariances."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
import skdim
import xarray as xr
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import cosine_similarity

from analysis import METRICS, compute_metrics
from analysis.streams import STREAMED

Rows = npt.NDArray[np.floating]
MOMENT = [name for name, metric in METRICS.items() if metric.needs not in ("neighbors", *STREAMED)]
SCALARS = [name for name in MOMENT if not METRICS[name].dims]


def measure(rows: Rows, *names: str, sequence: Rows | None = None) -> dict[str, float]:
    array = xr.DataArray(rows, dims=("token", "dim"))
    if sequence is not None:
        array = array.assign_coords(
            sequence=("token", sequence),
            position=("token", np.zeros(len(rows), int)),
            special=("token", np.zeros(len(rows), bool)),
        )
    results = compute_metrics(
        array, names or SCALARS, populations=["all"], errors=False, causal=False
    )
    return {str(name): float(value) for name, value in results.isel(population=0).items()}


def gaussian(n: int, width: int, seed: int = 0) -> Rows:
    return np.random.default_rng(seed).standard_normal((n, width)).astype(np.float32)


def test_three_rows_by_hand() -> None:
    # u = e1, e1, e2: pairs (1, 0, 0), average 1/3. Sequences {0, 1} and {2}: within 1, across 0.
    rows = np.array([[2.0, 0.0], [1.0, 0.0], [0.0, 3.0]], np.float32)
    found = measure(rows, sequence=np.array([0, 0, 1]))
    assert found["average_cosine"] == pytest.approx(1 / 3)
    assert found["average_cosine_within"] == pytest.approx(1)
    assert found["average_cosine_across"] == pytest.approx(0)
    # Dimension 1 adds 2² − 2 = 2 and dimension 2 adds 1² − 1 = 0: all of it is owed to the first.
    assert found["rogue_share_1"] == pytest.approx(1)
    # The mean row is (1, 1), the mean norm 2, the norms 1, 2, 3.
    assert found["drift_norm"] == pytest.approx(math.sqrt(2))
    assert found["drift_ratio"] == pytest.approx(math.sqrt(2) / 2)
    assert found["mean_norm"] == pytest.approx(2)
    assert found["median_norm"] == pytest.approx(2)
    assert found["max_norm_ratio"] == pytest.approx(1.5)
    # The values are 0, 0, 0, 1, 2, 3: the largest is 3, half of them are above and half below 1/2.
    assert found["max_activation"] == 3
    assert found["median_activation"] == pytest.approx(0.5)
    assert found["max_activation_ratio"] == pytest.approx(6)


def test_a_spectrum_by_hand() -> None:
    # Rows ±2 e1, ±1 e2: mean 0, covariance diag(8, 2)/4 = diag(2, 1/2).
    rows = np.array([[2, 0], [-2, 0], [0, 1], [0, -1]], np.float32)
    found = measure(rows)
    assert found["svd_anisotropy"] == pytest.approx(0.8)
    assert found["stable_rank"] == pytest.approx(1.25)
    # (2 + 1/2)²/(4 + 1/4) = 25/17, and IsoScore (25/17 − 1)/(2 − 1).
    assert found["participation_ratio"] == pytest.approx(25 / 17)
    assert found["isoscore"] == pytest.approx(8 / 17)
    # σ in the ratio 2 : 1, so p = 2/3, 1/3; λ in the ratio 4 : 1, so p = 4/5, 1/5.
    assert found["effective_rank"] == pytest.approx(3 / 2 ** (2 / 3))
    assert found["effective_rank_lambda"] == pytest.approx(5 / 4**0.8)
    assert found["variance_dimension_90"] == 2
    # Uncentred it is the same, since the mean is 0.
    assert found["rankme"] == pytest.approx(found["effective_rank"])
    assert found["svd_anisotropy_uncentred"] == pytest.approx(0.8)
    # Dimension 1: values 2, −2, 0, 0, fourth moment 8, variance 2: kurtosis 2; so for dimension 2.
    assert found["max_kurtosis"] == pytest.approx(2)


def test_a_power_law_has_its_exponent() -> None:
    # Rows ±√λ_j e_j have the covariance diag(λ_j)/d with λ_j = j^−1.5.
    values = np.arange(1, 151) ** -1.5
    rows = np.diag(np.sqrt(values))
    found = measure(np.concatenate([rows, -rows]), "spectrum_decay", "variance_dimension_95")
    assert found["spectrum_decay"] == pytest.approx(1.5, rel=1e-5)
    held = np.cumsum(values) / values.sum()
    assert found["variance_dimension_95"] == np.argmax(held >= 0.95) + 1


def test_the_spectrum_agrees_with_scikit_learn() -> None:
    rows = gaussian(500, 20) @ np.random.default_rng(1).standard_normal((20, 20)) + 3
    rows = rows.astype(np.float32)
    fitted = PCA().fit(rows.astype(np.float64))
    found = compute_metrics(xr.DataArray(rows, dims=("token", "dim")), ["spectrum"], errors=False)
    # scikit-learn divides by n − 1. Float32 products err by a few ε of the trace over √d.
    expected = fitted.explained_variance_ * 499 / 500
    np.testing.assert_allclose(
        found["spectrum"].values[0], expected, atol=2.0**-24 * expected.sum()
    )


def test_the_cosine_agrees_with_scikit_learn() -> None:
    rows = gaussian(400, 10) + 1
    matrix = cosine_similarity(rows.astype(np.float64))
    expected = (matrix.sum() - 400) / (400 * 399)
    assert measure(rows, "average_cosine")["average_cosine"] == pytest.approx(expected, rel=1e-7)


def test_the_participation_ratio_agrees_with_scikit_dimension() -> None:
    rows = gaussian(300, 12) * np.arange(1, 13, dtype=np.float32)
    expected = skdim.id.lPCA(ver="participation_ratio").fit(rows.astype(np.float64)).dimension_
    found = measure(rows, "participation_ratio")["participation_ratio"]
    assert found == pytest.approx(expected, rel=1e-6)


def test_isotropic_gaussian_rows_have_their_expected_values() -> None:
    n, width = 20_000, 50
    found = measure(gaussian(n, width))
    # The average of about n²/2 cosines of variance 1/d has the standard deviation √(2/d)/n.
    assert abs(found["average_cosine"]) < 5 * math.sqrt(2 / width) / n
    assert found["participation_ratio"] == pytest.approx(1 / (1 / n + 1 / width), rel=2e-3)
    assert found["max_kurtosis"] == pytest.approx(3, abs=0.3)
    assert found["outlier_dimensions"] == 0


def test_a_spiked_covariance_has_its_share() -> None:
    # One dimension of variance 50² beside 99 of variance 1: the share is 2500/2599 up to a
    # sampling error of about √(2/n) of the spike.
    rows = gaussian(20_000, 100)
    rows[:, 7] *= 50
    found = measure(rows)
    assert found["svd_anisotropy"] == pytest.approx(2500 / 2599, rel=1e-3)
    assert found["outlier_dimensions"] == 1


SCALED = {
    "drift_norm",
    "mean_norm",
    "median_norm",
    "max_norm",
    "max_activation",
    "median_activation",
}
ORIGIN = {name for name in SCALARS if METRICS[name].needs in ("directions", "moments")} | {
    "svd_anisotropy_uncentred",
    "rankme",
}
AXES = {
    "rogue_share_1",
    "rogue_share_3",
    "max_kurtosis",
    "outlier_dimensions",
    "max_activation",
    "median_activation",
    "max_activation_ratio",
}


@pytest.mark.parametrize("power", [-100, -3, 20, 60])
def test_scale_changes_lengths_alone(power: int) -> None:
    rows = gaussian(300, 8) + 2
    before, after = measure(rows), measure(rows * np.float32(2.0**power))
    for name in SCALARS:
        factor = 2.0**power if name in SCALED else 1.0
        assert after[name] == pytest.approx(before[name] * factor, rel=1e-6, nan_ok=True), name


def test_rotation_changes_what_is_tied_to_axes_alone() -> None:
    rows = gaussian(400, 8) * np.arange(1, 9, dtype=np.float32) + 1
    turn = np.linalg.qr(np.random.default_rng(2).standard_normal((8, 8)))[0]
    before, after = measure(rows), measure((rows @ turn).astype(np.float32))
    for name in set(SCALARS) - AXES:
        # Rotating rounds the rows themselves to float32.
        assert after[name] == pytest.approx(before[name], rel=2e-5, nan_ok=True), name


def test_translation_changes_what_looks_from_the_origin_alone() -> None:
    rows = gaussian(400, 8) * np.arange(1, 9, dtype=np.float32)
    before, after = measure(rows), measure(rows + np.float32(4))
    for name in (set(SCALARS) - ORIGIN) | {"max_kurtosis"}:
        assert after[name] == pytest.approx(before[name], rel=1e-5, nan_ok=True), name


def test_permuting_the_rows_changes_nothing() -> None:
    rows = gaussian(5000, 8) + 1
    before = measure(rows)
    after = measure(np.random.default_rng(3).permutation(rows))
    for name in SCALARS:
        assert after[name] == pytest.approx(before[name], rel=1e-6, nan_ok=True), name


def test_an_exact_rank_below_the_width_is_not_blurred_by_rounding() -> None:
    # Three directions of equal variance in 64 dimensions: each count of them is 3.
    signs = np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, -1).T.astype(np.float64)
    axes = np.linalg.qr(np.random.default_rng(4).standard_normal((64, 3)))[0]
    rows = np.tile(signs @ axes.T, (500, 1)).astype(np.float32)
    found = measure(rows)
    for name in ("participation_ratio", "effective_rank", "stable_rank"):
        assert found[name] == pytest.approx(3, rel=1e-5), name


def test_fewer_rows_than_dimensions_span_one_fewer() -> None:
    rows = gaussian(10, 200)
    found = measure(rows)
    values = np.linalg.svd(rows.astype(float) - rows.astype(float).mean(0), compute_uv=False)
    shares = values[:9] / values[:9].sum()
    assert found["effective_rank"] == pytest.approx(
        math.exp(-(shares * np.log(shares)).sum()), rel=1e-6
    )
    assert found["effective_rank"] < 9
    assert found["variance_dimension_99"] <= 9
    assert math.isnan(found["spectrum_decay"])


def test_one_row_has_a_mean_and_no_spread() -> None:
    found = measure(np.array([[3.0, 4.0]], np.float32))
    assert found["drift_norm"] == pytest.approx(5)
    assert found["mean_norm"] == pytest.approx(5)
    for name in ("average_cosine", "svd_anisotropy", "participation_ratio", "effective_rank"):
        assert math.isnan(found[name]), name


@pytest.mark.parametrize("row", [[0.1, 0.7, -3.3], [1e20, 1e19, 0], [1e-30, 0, 2e-30]])
def test_constant_rows_have_a_direction_and_no_spectrum(row: list[float]) -> None:
    found = measure(np.tile(np.array(row, np.float32), (5000, 1)))
    assert found["average_cosine"] == pytest.approx(1)
    assert found["drift_ratio"] == pytest.approx(1)
    for name in SCALARS:
        spectral = METRICS[name].needs == "spectrum" and METRICS[name].name not in ORIGIN
        if spectral or name == "max_kurtosis":
            assert math.isnan(found[name]), name


def test_rows_of_zeros_have_no_direction_and_no_shares() -> None:
    found = measure(np.zeros((50, 4), np.float32))
    for name in set(SCALARS) - {"drift_norm", "outlier_dimensions", *SCALED}:
        assert math.isnan(found[name]), name
    assert found["mean_norm"] == 0


def test_some_rows_of_zeros_are_left_out_of_the_cosine() -> None:
    rows = gaussian(100, 4) + 1
    padded = np.concatenate([rows, np.zeros((50, 4), np.float32)])
    found = measure(padded, "average_cosine", "mean_norm")
    assert found["average_cosine"] == pytest.approx(measure(rows)["average_cosine"])
    assert found["mean_norm"] == pytest.approx(measure(rows)["mean_norm"] * 2 / 3)


def test_one_column_has_everything_in_it() -> None:
    found = measure(gaussian(50, 1))
    assert found["svd_anisotropy"] == pytest.approx(1)
    assert math.isnan(found["isoscore"])


def test_massive_rows_do_not_spoil_the_others() -> None:
    # One row in a hundred at 10,000 times the norm, as float16 range and beyond it.
    rows = gaussian(4000, 30)
    rows[::100] *= 1e4
    exact = rows.astype(np.float64)
    values = np.linalg.svd(exact - exact.mean(0), compute_uv=False)
    shares = values / values.sum()
    found = measure(rows)
    expected = math.exp(-(shares * np.log(shares)).sum())
    assert found["effective_rank"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_massive_rows_hide_no_small_eigenvalue(offset: float) -> None:
    # One row in 128 is 3,000 long along one direction: λ₁ is 1e6 times the others, and float32
    # products of all rows together would be off by about 1e-7 of it, a tenth of the smallest.
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((6000, 96)) * np.arange(1, 97) ** -0.5
    rows[::128] += 3000 * np.ones(96) / math.sqrt(96)
    rows = (rows + offset * rng.standard_normal(96)).astype(np.float32)
    exact = rows.astype(np.float64)
    values = np.linalg.svd(exact - exact.mean(0), compute_uv=False)
    shares = values / values.sum()
    expected = math.exp(-(shares * np.log(shares)).sum())
    found = measure(rows, "effective_rank")["effective_rank"]
    assert found == pytest.approx(expected, rel=1e-6)


def test_every_metric_says_what_it_is() -> None:
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.version >= 1
        assert metric.function.__doc__, name
        for text in (metric.long_name, metric.units, metric.range, metric.reference):
            assert text, name
        assert metric.undefined, name
        assert (metric.k > 0) == (metric.needs == "neighbors"), name
