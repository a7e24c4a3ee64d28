"""Means over seeds of made-up results, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from flows.studies.seeds import average_seeds, families

DIMS = ("model", "step", "layer", "population")


def results(models: list[str], values: list[list[float]]) -> xr.Dataset:
    """Results with a value a model and step, one layer, one population; NaN where not there."""
    table = np.array(values)[:, :, None, None]
    return xr.Dataset(
        {
            "metric": (DIMS, table),
            "metric_stderr": (DIMS, np.full_like(table, 9.0)),
            "n": (DIMS, np.where(np.isnan(table), np.nan, 100.0)),
        },
        {
            "model": models,
            "step": list(range(table.shape[1])),
            "layer": [0],
            "population": ["all"],
            "relative_depth": (("model", "layer"), np.zeros((len(models), 1))),
        },
    )


def test_seeds_of_a_run_are_found_by_their_names() -> None:
    names = ["tiny", "tiny-seed1", "multiberts-seed_0", "multiberts-seed_1", "seedling", "other"]
    assert families(names) == {
        "tiny": ["tiny", "tiny-seed1"],
        "multiberts": ["multiberts-seed_0", "multiberts-seed_1"],
        "seedling": ["seedling"],
        "other": ["other"],
    }


def test_the_mean_over_seeds_has_their_standard_error() -> None:
    means, members = average_seeds(
        results(["run", "run-seed1", "run-seed2"], [[1.0, 2.0], [2.0, 2.0], [6.0, 2.0]])
    )
    assert members == {"run": ["run", "run-seed1", "run-seed2"]}
    assert means["model"].values.tolist() == ["run"]
    # Mean 3, deviations −2, −1, 3: √(14/2) = √7, over √3.
    np.testing.assert_allclose(means["metric"].values.ravel(), [3.0, 2.0])
    np.testing.assert_allclose(means["metric_stderr"].values.ravel(), [np.sqrt(7 / 3), 0.0])


def test_steps_that_a_seed_lacks_are_left_out() -> None:
    means, _ = average_seeds(results(["run", "run-seed1"], [[1.0, 2.0], [3.0, np.nan]]))
    np.testing.assert_allclose(means["metric"].values.ravel(), [2.0, np.nan])
    np.testing.assert_allclose(means["n"].values.ravel(), [100.0, np.nan])


def test_a_single_run_keeps_its_name_and_its_own_error() -> None:
    means, members = average_seeds(results(["run-seed1", "other"], [[1.0], [2.0]]))
    assert members == {"run-seed1": ["run-seed1"], "other": ["other"]}
    np.testing.assert_allclose(means["metric"].values.ravel(), [1.0, 2.0])
    np.testing.assert_allclose(means["metric_stderr"].values.ravel(), [9.0, 9.0])
    assert means["relative_depth"].dims == ("model", "layer")
    assert not np.isnan(means["relative_depth"]).any()


def test_a_single_run_beside_a_family_keeps_its_error() -> None:
    models = ["run", "run-seed1", "other"]
    means, _ = average_seeds(results(models, [[1.0], [3.0], [5.0]]))
    assert means["metric"].sel(model="other").item() == 5.0
    assert means["metric_stderr"].sel(model="run").item() == pytest.approx(1.0)
