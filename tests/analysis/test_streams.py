"""Metrics with passes of their own, through the interface that users have."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from scipy.special import logsumexp

from analysis import METRICS, compute_metrics

NAMES = ["leading_share", "leading_share_bound", "partition_isotropy", "svd_anisotropy"]


@pytest.fixture(scope="module")
def activations() -> xr.DataArray:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2, 600, 24)) * np.arange(1, 25) ** -0.8 + rng.standard_normal(24)
    rows[:, ::20] *= 12
    position = np.arange(600) % 20
    coordinates = {
        "special": ("token", position == 19),
        "position": ("token", position),
        "sequence": ("token", np.arange(600) // 20),
    }
    return xr.DataArray(rows.astype(np.float32), dims=("layer", "token", "dim"), coords=coordinates)


@pytest.fixture(scope="module")
def found(activations) -> xr.Dataset:
    return compute_metrics(activations, NAMES, causal=True)


def rows_of(activations, population: str, layer: int) -> np.ndarray:
    position = activations["position"].values
    rows = activations.values[layer].astype(np.float64)
    if population == "all":
        return rows
    rows = rows[(position > 0) & (position < 19)]
    norms = np.linalg.norm(rows, axis=1)
    if population == "unit":
        return rows / norms[:, None]
    return rows[norms <= 3 * np.median(norms)] if population == "typical" else rows


@pytest.mark.parametrize("population", ["all", "content", "typical", "unit"])
@pytest.mark.parametrize("layer", [0, 1])
def test_partition_functions_along_the_eigenvectors(activations, found, population, layer) -> None:
    rows = rows_of(activations, population, layer)
    axes = np.linalg.svd(rows, full_matrices=False)[2].T
    logarithms = logsumexp(np.stack([rows @ axes, -rows @ axes]), axis=1)
    expected = np.exp(logarithms.min() - logarithms.max())
    value = found["partition_isotropy"].sel(population=population)[layer].item()
    # The eigenvectors come from float32 products.
    assert value == pytest.approx(expected, rel=1e-3)
    assert found["partition_isotropy_stderr"].sel(population=population)[layer].item() > 0


@pytest.mark.parametrize("population", ["all", "content", "typical", "unit"])
def test_the_leading_share_is_the_anisotropy(found, population) -> None:
    chosen = found.sel(population=population)
    np.testing.assert_allclose(chosen["leading_share"], chosen["svd_anisotropy"], rtol=1e-4)
    assert (chosen["leading_share_bound"] <= 1e-4).all()


def test_rows_alike_in_all_directions_are_isotropic() -> None:
    axes = np.concatenate([np.eye(5), -np.eye(5)])
    value = compute_metrics(xr.DataArray(axes, dims=("token", "dim")), ["partition_isotropy"])
    assert value["partition_isotropy"].item() == pytest.approx(1)


def test_they_are_computed_only_by_name(activations) -> None:
    default = compute_metrics(activations[:1, :100], causal=True, populations=["all"])
    assert not set(NAMES[:3]) & set(default.data_vars)
    assert {name for name, metric in METRICS.items() if metric.default} <= set(default.data_vars)
