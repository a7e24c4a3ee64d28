"""The largest eigenvalue without a covariance: exact within its bound, in few passes."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.krylov import MOST_PASSES, TOLERANCE, leading_share


def spread(n: int, d: int, decay: float, offset: float = 0.0, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d)) * np.arange(1, d + 1) ** -decay
    return rows @ np.linalg.qr(rng.standard_normal((d, d)))[0] + offset * rng.standard_normal(d)


def exact(rows: np.ndarray) -> float:
    rows = rows.astype(np.float64)
    values = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False) ** 2
    return float(values[0] / values.sum())


def found(rows: np.ndarray, **options):
    def blocks():
        return (rows[start : start + 300] for start in range(0, len(rows), 300))

    return leading_share(blocks, rows[:: max(1, len(rows) // 200)], **options)


@pytest.mark.parametrize("decay", [0.3, 0.7, 1.5])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_it_is_the_share_within_the_bound(decay: float, offset: float) -> None:
    rows = spread(2000, 120, decay, offset).astype(np.float32)
    share, truth = found(rows), exact(rows)
    # From below, but for the rounding of float32 products.
    assert share.share <= truth * (1 + 1e-5)
    assert truth <= share.share * (1 + share.bound + 1e-5)
    assert share.passes <= MOST_PASSES


def test_a_gap_is_found_in_two_passes() -> None:
    rows = spread(3000, 200, 1.0).astype(np.float32)
    share = found(rows)
    assert share.bound <= TOLERANCE
    assert share.passes <= 2
    assert share.share == pytest.approx(exact(rows), rel=TOLERANCE)


def test_two_equal_leading_values_do_not_break_the_bound() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((4000, 60)) * np.r_[5.0, 5.0, np.ones(58)]
    share = found(rows)
    assert share.share <= exact(rows) * (1 + 1e-12) <= share.share * (1 + share.bound) + 1e-12


@pytest.mark.parametrize("n", [2, 3, 9])
def test_few_rows(n: int) -> None:
    rows = spread(n, 50, 1.0)
    assert leading_share(lambda: iter([rows]), rows).share == pytest.approx(exact(rows), rel=1e-9)


def test_one_dimension_and_rows_that_do_not_vary() -> None:
    line = np.arange(10.0)[:, None]
    assert leading_share(lambda: iter([line]), line).share == pytest.approx(1)
    same = np.ones((10, 3))
    assert np.isnan(leading_share(lambda: iter([same]), same).share)
    assert np.isnan(leading_share(lambda: iter([same[:1]]), same[:1]).share)
