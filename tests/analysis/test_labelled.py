"""compute_metrics on whatever labelled arrays users have."""

from __future__ import annotations

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import METRICS, Metric, compute_metrics
from analysis.errors import (
    InputError,
    NonFiniteRowsError,
    UnknownMetricError,
    UnknownPopulationError,
)
from analysis.statistics import Statistics

QUICK = ["average_cosine", "svd_anisotropy"]


@pytest.fixture(scope="module")
def model() -> xr.Dataset:
    """A Dataset as open_store gives it: two steps, three layers, a causal model."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((2, 3, 400, 6)).astype(np.float32) + 1
    position = np.tile(np.arange(20), 20)
    values[:, :, position == 0] *= 50
    return xr.Dataset(
        {"residual": (("step", "layer", "token", "dim"), values)},
        {
            "step": [0, 100],
            "layer": [0, 1, 2],
            "relative_depth": ("layer", [0.0, 0.5, 1.0]),
            "loss": ("step", [9.0, 3.0]),
            "sequence": ("token", np.repeat(np.arange(20), 20)),
            "position": ("token", position),
            "special": ("token", np.zeros(400, bool)),
        },
        {"causal": True},
    )


def test_results_are_labelled(model: xr.Dataset) -> None:
    found = compute_metrics(model, QUICK)
    assert found["average_cosine"].dims == ("step", "layer", "population")
    assert found["population"].values.tolist() == ["all", "content", "typical", "unit"]
    assert found["relative_depth"].values.tolist() == [0.0, 0.5, 1.0]
    assert found["loss"].values.tolist() == [9.0, 3.0]
    assert "position" not in found.coords
    assert (found["n"].sel(population="all") == 400).all()
    assert (found["n"].sel(population="content") == 380).all()
    assert (found["n_dropped_first"].sel(population="content") == 20).all()
    assert (found["n_sequences"] == 20).all()
    assert (found["svd_anisotropy_stderr"] > 0).all()


def test_attributes_say_what_a_variable_is(model: xr.Dataset) -> None:
    found = compute_metrics(model, [*QUICK, "two_nn"])
    for name, variable in found.items():
        assert variable.attrs["long_name"], name
        assert variable.attrs["units"], name
    assert found["two_nn"].attrs["reference"].startswith("Facco")
    assert found["two_nn"].attrs["version"] == METRICS["two_nn"].version
    assert found["two_nn_stderr"].attrs["long_name"].startswith("standard error of intrinsic")


def test_neighbours_are_sought_in_content_unless_told_otherwise(model: xr.Dataset) -> None:
    found = compute_metrics(model.isel(step=[0]), ["two_nn", "gride"], sample=200)
    assert found["population"].values.tolist() == ["all", "content", "typical", "unit"]
    assert found["two_nn"].notnull().sum("layer").squeeze().values.tolist() == [0, 3, 0, 0]
    assert found["gride"].dims == ("step", "layer", "population", "scale")
    assert (found["neighbors_n"].sel(population="content") == 200).all()
    asked = compute_metrics(model.isel(step=[0]), ["two_nn"], populations=["all", "typical"])
    assert asked["two_nn"].notnull().all()
    assert asked["neighbors_n"].values[0, 0].tolist() == [400, 380]


def test_all_metrics_by_default(model: xr.Dataset) -> None:
    found = compute_metrics(model.isel(step=[0], layer=[0]), errors=False)
    assert {name for name, metric in METRICS.items() if metric.default} <= set(found.data_vars)
    assert not [name for name in found.data_vars if str(name).endswith("_stderr")]
    assert found["spectrum"].sizes["component"] == 6
    assert found["component"].values.tolist() == [1, 2, 3, 4, 5, 6]


@given(
    tokens=st.lists(st.integers(1, 200), min_size=1, max_size=5),
    width=st.sampled_from([2, 3, 6]),
    layers=st.integers(1, 3),
)
@settings(max_examples=6, deadline=None)
def test_dask_arrays_give_the_same_in_any_chunks(
    model: xr.Dataset, tokens: list[int], width: int, layers: int
) -> None:
    part = model.isel(step=0)
    lengths, left = [], 400
    while left:
        lengths.append(min(tokens[len(lengths) % len(tokens)], left))
        left -= lengths[-1]
    lazy = part.chunk({"token": tuple(lengths), "dim": width, "layer": layers})
    xr.testing.assert_identical(compute_metrics(lazy, QUICK).load(), compute_metrics(part, QUICK))


def test_a_dask_chunk_is_computed_once_a_layer() -> None:
    computed: list[int] = []

    def block(value: np.ndarray) -> np.ndarray:
        computed.append(len(value))
        return value

    values = np.random.default_rng(0).standard_normal((9000, 4)).astype(np.float32)
    lazy = da.map_blocks(block, da.from_array(values, chunks=(5000, 4)), meta=values[:0])
    compute_metrics(xr.DataArray(lazy, dims=("token", "dim")), QUICK)
    assert sorted(computed) == [4000, 5000]


def test_a_plain_array_has_one_population_and_no_sequences() -> None:
    array = xr.DataArray(np.random.default_rng(0).standard_normal((50, 3)), dims=("token", "dim"))
    found = compute_metrics(array, [*QUICK, "two_nn", "average_cosine_within"])
    assert found["population"].values.tolist() == ["all"]
    assert found["average_cosine"].dims == ("population",)
    assert np.isnan(found["average_cosine_within"]).all()
    assert "n_sequences" not in found or np.isnan(found["n_sequences"]).all()
    assert found["two_nn"].notnull().all()


def test_any_order_of_dimensions_and_any_further_ones(model: xr.Dataset) -> None:
    array = model["residual"].rename(dim="head_dim", layer="head")
    found = compute_metrics(
        array.transpose("head_dim", "head", "token", "step"), QUICK, causal=True
    )
    expected = compute_metrics(model, QUICK)
    assert found["average_cosine"].dims == ("head", "step", "population")
    np.testing.assert_array_equal(
        found["svd_anisotropy"].transpose("step", "head", "population").values,
        expected["svd_anisotropy"].values,
    )


def test_rows_may_come_in_any_order(model: xr.Dataset) -> None:
    order = np.random.default_rng(0).permutation(400)
    shuffled = compute_metrics(model.isel(token=order), QUICK)
    expected = compute_metrics(model, QUICK)
    for name in expected.data_vars:
        if not str(name).endswith("_stderr"):
            np.testing.assert_allclose(shuffled[name], expected[name], rtol=1e-5)


def test_integers_and_half_precision_are_taken() -> None:
    values = np.random.default_rng(0).integers(-9, 9, (60, 3))
    found = [
        compute_metrics(xr.DataArray(values.astype(dtype), dims=("token", "dim")), QUICK)
        for dtype in ("int64", "float16", "float32")
    ]
    xr.testing.assert_allclose(found[0], found[2])
    xr.testing.assert_allclose(found[1], found[2])


def first_mean(statistics: Statistics) -> float:
    """Return the mean of the first dimension."""
    return float(statistics.mean[0])


def test_a_metric_of_ones_own(model: xr.Dataset) -> None:
    own = Metric(
        "first_mean",
        first_mean,
        needs="moments",
        version=1,
        long_name="mean of the first dimension",
        units="activation",
        range="any",
        reference="none",
    )
    found = compute_metrics(model, [own, "average_cosine"], populations=["all"])
    expected = model["residual"].mean("token").isel(dim=0).values
    np.testing.assert_allclose(found["first_mean"].isel(population=0), expected, rtol=1e-5)
    assert (found["first_mean_stderr"] > 0).all()


def test_a_function_is_a_metric(model: xr.Dataset) -> None:
    found = compute_metrics(model, [first_mean], populations=["content"])
    assert found["first_mean"].attrs["long_name"] == "Return the mean of the first dimension"
    named = compute_metrics(model, [f"{first_mean.__module__}:first_mean"], populations=["content"])
    xr.testing.assert_identical(found, named)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere_at_all:f", "No module named 'nowhere_at_all'"),
        ("math:nothing", "has no attribute 'nothing'"),
        ("math:pi", "is a float; expected a function of Statistics"),
    ],
)
def test_a_function_that_cannot_be_imported_is_refused(
    model: xr.Dataset, name: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        compute_metrics(model, [name])


def test_a_nameless_function_is_refused(model: xr.Dataset) -> None:
    with pytest.raises(InputError, match="a metric needs a name to store its values under"):
        compute_metrics(model, [lambda statistics: float(statistics.n)])


def test_two_metrics_of_one_name_are_refused(model: xr.Dataset) -> None:
    other = replace(METRICS["drift_norm"], version=7)
    with pytest.raises(InputError, match="two different metrics have one name"):
        compute_metrics(model, ["drift_norm", other])


def test_an_unknown_metric_is_refused_with_near_names(model: xr.Dataset) -> None:
    with pytest.raises(UnknownMetricError, match="'avg_cosine'; did you mean 'average_cosine'"):
        compute_metrics(model, ["avg_cosine"])


def test_an_unknown_population_is_refused(model: xr.Dataset) -> None:
    with pytest.raises(UnknownPopulationError, match="'tipical'; did you mean 'typical'"):
        compute_metrics(model, QUICK, populations=["tipical"])


def test_a_missing_variable_is_named(model: xr.Dataset) -> None:
    with pytest.raises(InputError, match=r"no variable 'hidden', only \['residual'\]"):
        compute_metrics(model, QUICK, site="hidden")


def test_an_array_without_rows_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"need the dimensions \('token', 'dim'\), got \('x', 'y'\)"
    ):
        compute_metrics(xr.DataArray(np.zeros((2, 2)), dims=("x", "y")), QUICK)


def test_whether_a_model_is_causal_must_be_known(model: xr.Dataset) -> None:
    with pytest.raises(InputError, match="pass causal=True or causal=False"):
        compute_metrics(model["residual"], QUICK)


def test_half_of_the_token_coordinates_are_refused(model: xr.Dataset) -> None:
    with pytest.raises(InputError, match=r"coordinates \['position', 'sequence'\] but populations"):
        compute_metrics(model.drop_vars("special"), QUICK)


def test_text_is_no_activation() -> None:
    array = xr.DataArray(np.array([["a", "b"]]), dims=("token", "dim"))
    with pytest.raises(InputError, match="must be real numbers, got dtype <U1"):
        compute_metrics(array, QUICK)


@pytest.mark.parametrize("names", [QUICK, ["two_nn"]])
def test_values_that_are_not_finite_are_refused(model: xr.Dataset, names: list[str]) -> None:
    bad = model.copy(deep=True)
    bad["residual"][0, 1, 33, 2] = np.nan
    with pytest.raises(NonFiniteRowsError, match="hold NaN or infinity"):
        compute_metrics(bad, names)
