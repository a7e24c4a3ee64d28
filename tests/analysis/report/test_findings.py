"""Findings: each is there when it should be, and names what it is about."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr

from analysis.report.findings import KINDS, find
from analysis.report.measured import Measured
from store.catalogue import HeldStep

Steps = Callable[..., HeldStep]
Models = Callable[..., Measured]


def told(measured: Measured) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for finding in find(measured):
        found.setdefault(finding.kind.name, []).append(finding.text)
    return found


def test_a_sound_model_has_only_its_outliers(make_model: Models) -> None:
    # 10 rows dropped beside 990 kept, in layer 2 of every step, the first of which is told.
    assert told(make_model()) == {"Outlier rows": ["up to 1.00% (layer 2, step 0)"]}
    assert find(make_model())[0].where == "plays / tiny"


def test_steps_of_one_origin_are_told_once(make_model: Models, make_step: Steps) -> None:
    steps = [
        make_step(0),
        make_step(1, duplicates=(8, 64)),
        make_step(8, duplicates=(1, 64)),
        make_step(64, duplicates=(1, 8), shared=(0,)),
    ]
    found = told(make_model(steps=steps))
    assert found["Same weights"] == ["steps 1, 8 and 64"]
    assert found["Shared weight files"] == ["step 64"]


def test_gaps_and_values_that_are_not_finite(make_model: Models, make_step: Steps) -> None:
    steps = [
        make_step(0, nonfinite=1, sites=("residual", "query")),
        make_step(1),
        make_step(2),
        make_step(8, complete=False),
        make_step(64, sites=("residual", "query")),
    ]
    found = told(make_model(steps=steps))
    assert found["Incomplete steps"] == ["step 8"]
    assert found["Values that are not finite"] == ["1 value: step 0"]
    assert found["Missing steps"] == ["step 2"]
    assert found["Missing sites"] == ["query: steps 1 and 2"]


def test_a_step_whose_metrics_are_all_absent_is_missing(
    make_model: Models, make_results: Callable[..., xr.Dataset]
) -> None:
    results = make_results()
    results = results.where(results.step != 8)
    assert told(make_model(results=results))["Missing steps"] == ["step 8"]


@pytest.mark.parametrize("results", [xr.Dataset(), xr.Dataset({"n": ("step", [np.nan])})])
def test_a_model_without_metrics_says_so(make_model: Models, results: xr.Dataset) -> None:
    assert told(make_model(results=results)) == {"No metrics": ["no metric of any step"]}


def test_many_steps_are_abridged(make_model: Models, make_step: Steps) -> None:
    steps = [make_step(step, complete=False) for step in range(20)]
    (text,) = told(make_model(steps=steps))["Incomplete steps"]
    assert text == "steps 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 8 more"


def test_warnings_come_before_notes() -> None:
    levels = [kind.level for kind in KINDS]
    assert levels == sorted(levels, key=["warning", "note"].index)


def test_several_samples_of_one_metric_are_told(
    make_model: Models, make_samples: Callable[..., xr.DataArray]
) -> None:
    samples = {"gride": make_samples([400] * 4), "average_cosine": make_samples([400, 50, 0, 0])}
    found = told(make_model(samples=samples))
    assert found["Several samples"] == ["average_cosine: sample 50, seed 0; sample 400, seed 0"]
