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
    # Any axes are eigenvectors of these rows, and Z differs in second order between them.
    assert value["partition_isotropy"].item() == pytest.approx(1, abs=0.1)


def test_they_are_computed_only_by_name(activations) -> None:
    default = compute_metrics(activations[:1, :100], causal=True, populations=["all"])
    assert not set(NAMES[:3]) & set(default.data_vars)
    assert {name for name, metric in METRICS.items() if metric.default} <= set(default.data_vars)


@pytest.mark.parametrize("population", ["all", "content", "typical", "unit"])
def test_rows_by_how_often_their_token_occurs(activations, population) -> None:
    position = activations["position"].values
    ids = np.where(np.arange(600) % 3 == 0, 7, np.arange(600))  # one frequent token, others rare
    labelled = activations.assign_coords(token_id=("token", ids))
    names = ["count_by_frequency", "norm_by_frequency", "cosine_to_mean_by_frequency"]
    found = compute_metrics(labelled, names, causal=True, populations=[population])
    found = found.sel(population=population).isel(layer=0)
    rows = rows_of(activations, population, 0)
    content = (position > 0) & (position < 19)
    chosen = np.ones(600, bool) if population == "all" else content.copy()
    if population == "typical":
        norms = np.linalg.norm(activations.values[0].astype(np.float64), axis=1)
        chosen &= norms <= 3 * np.median(norms[content])
    frequent = ids[chosen] == 7
    bin_of_frequent = 1 << int(np.log2((ids[content] == 7).sum()))
    mean = rows.mean(axis=0)
    norms = np.linalg.norm(rows, axis=1)
    cosines = rows @ mean / norms / np.linalg.norm(mean)
    for bin_, members in ((1, ~frequent), (bin_of_frequent, frequent)):
        at = found.sel(frequency=bin_)
        assert at["count_by_frequency"] == members.sum()
        assert at["norm_by_frequency"].item() == pytest.approx(norms[members].mean(), rel=1e-5)
        cosine = at["cosine_to_mean_by_frequency"].item()
        assert cosine == pytest.approx(cosines[members].mean(), rel=1e-4, abs=1e-6)
    assert found["count_by_frequency"].sum() == len(rows)
    assert found["cosine_to_mean_by_frequency_stderr"].sel(frequency=1) > 0


def test_frequencies_need_token_ids(activations) -> None:
    found = compute_metrics(activations[:1], ["norm_by_frequency"], causal=True)
    assert found["norm_by_frequency"].isnull().all()
