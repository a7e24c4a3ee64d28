from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from analysis import METRICS, AnalysisError, compute_metrics


@pytest.fixture
def array() -> xr.DataArray:
    values = np.random.default_rng(0).standard_normal((2, 60, 4)).astype(np.float32) + 1
    return xr.DataArray(values, dims=("layer", "token", "dim"), name="residual")


def test_a_metric_is_a_method_of_an_array(array: xr.DataArray) -> None:
    expected = compute_metrics(array, ["svd_anisotropy"], errors=False)["svd_anisotropy"]
    xr.testing.assert_identical(array.geometry.svd_anisotropy(), expected)


def test_a_metric_is_a_method_of_a_dataset(array: xr.DataArray) -> None:
    found = array.to_dataset(name="states").geometry.average_cosine(site="states")
    assert found.dims == ("layer", "population")


def test_several_metrics_in_one_pass(array: xr.DataArray) -> None:
    found = array.geometry.compute(["average_cosine", "two_nn"], populations=["all"])
    xr.testing.assert_identical(
        found, compute_metrics(array, ["average_cosine", "two_nn"], populations=["all"])
    )


def test_methods_are_listed_and_documented(array: xr.DataArray) -> None:
    assert set(METRICS) <= set(dir(array.geometry))
    assert array.geometry.drift_norm.__doc__ == METRICS["drift_norm"].function.__doc__


def test_an_unknown_metric_is_no_attribute(array: xr.DataArray) -> None:
    with pytest.raises(AttributeError, match="no metric is called 'anisotropy'"):
        array.geometry.anisotropy()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"metrics": "two_nn"}, r"metrics are one text: expected a list, \['two_nn'\]"),
        ({"metrics": METRICS["two_nn"]}, r"metrics are the metric two_nn: expected a list"),
        ({"metrics": [METRICS]}, r"\{'average_cosine': .* is no metric: expected names"),
        ({"metrics": [3]}, "3 is no metric: expected names, a Metric or a function of Statistics"),
        ({"populations": "all"}, r"populations are one text: expected a list, \['all'\]"),
        ({"metrics": ["two_nn"], "sample": -1}, "a sample of -1 rows was asked for"),
    ],
)
def test_what_cannot_be_meant_is_said(array: xr.DataArray, given: dict, expected: str) -> None:
    with pytest.raises(AnalysisError, match=expected):
        compute_metrics(array, **given)


def test_metrics_can_be_a_dictionary_like_that_of_all(array: xr.DataArray) -> None:
    chosen = {"mine": METRICS["drift_norm"]}
    xr.testing.assert_identical(
        compute_metrics(array, chosen), compute_metrics(array, ["drift_norm"])
    )


def test_arrays_without_names_of_dimensions_are_refused(array: xr.DataArray) -> None:
    with pytest.raises(AnalysisError, match=r"a ndarray: expected a DataArray .*dims="):
        compute_metrics(array.values)
