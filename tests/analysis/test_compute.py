"""Measuring a store: what is computed, what is left alone, and what is committed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import dask
import numpy as np
import pytest
import xarray as xr

from analysis import METRICS, compute, compute_metrics
from analysis.compute import measure
from analysis.errors import (
    SchedulerError,
    UnknownMetricError,
    UnknownPopulationError,
)
from store.errors import UnknownNameError
from store.metrics import read_metrics

QUICK = ["average_cosine", "svd_anisotropy", "two_nn"]


def read(stored) -> xr.Dataset:
    found = read_metrics(stored.repository, stored.path)
    assert found is not None
    return found.load()


def test_a_store_gives_what_its_arrays_give(stored) -> None:
    report = measure(stored.repository, stored.path, metrics=QUICK, sample=300)
    # Two steps of three layers: two metrics of moments in four populations, one of neighbours.
    assert report.computed == 6 * (2 * 4 + 1)
    assert report.up_to_date == 0
    assert report.slabs == 6
    assert report.bytes_read == 6 * 500 * 8 * 4
    found = read(stored)
    array = xr.DataArray(
        np.stack([stored.values[0], stored.values[10]]),
        dims=("step", "layer", "token", "dim"),
        coords={
            name: ("token", stored.tokens[name]) for name in ("special", "position", "sequence")
        },
    )
    expected = compute_metrics(array, QUICK, sample=300, causal=True)
    for name in expected.data_vars:
        values = found[name].sel(population=expected["population"].values)
        np.testing.assert_array_equal(values, expected[name].values, err_msg=str(name))
        assert values.attrs == expected[name].attrs


def test_a_second_run_computes_nothing(stored) -> None:
    first = measure(stored.repository, stored.path, metrics=QUICK)
    committed = stored.repository.snapshot_id()
    again = measure(stored.repository, stored.path, metrics=QUICK)
    assert (again.computed, again.up_to_date, again.slabs) == (0, first.computed, 0)
    assert stored.repository.snapshot_id() == committed


def test_only_what_is_missing_is_computed(stored) -> None:
    measure(stored.repository, stored.path, metrics=QUICK[:1], populations=["all"], layers=[1])
    report = measure(stored.repository, stored.path, metrics=QUICK[:1], steps=[10])
    assert report.computed == 3 * 4 - 1
    assert report.up_to_date == 1
    assert report.slabs == 3
    found = read(stored)["average_cosine"]
    assert found.sel(step=0, layer=1).notnull().sum() == 1
    assert found.sel(step=10).notnull().all()
    assert found.sel(step=0, layer=0).isnull().all()


def test_metrics_are_added_beside_others(stored) -> None:
    measure(stored.repository, stored.path, metrics=["average_cosine"])
    before = read(stored)["average_cosine"]
    measure(stored.repository, stored.path, metrics=["drift_norm", "two_nn"], layers=[2])
    after = read(stored)
    xr.testing.assert_identical(before.drop_attrs(), after["average_cosine"].drop_attrs())
    assert after["drift_norm"].sel(layer=2).notnull().all()


def test_another_seed_or_sample_is_another_value(stored) -> None:
    measure(stored.repository, stored.path, metrics=QUICK, sample=200, layers=[0], steps=[0])
    before = read(stored)["two_nn"]
    options = {"metrics": QUICK, "layers": [0], "steps": [0]}
    same = measure(stored.repository, stored.path, sample=200, **options)
    assert same.computed == 0
    other = measure(stored.repository, stored.path, sample=200, seed=1, **options)
    assert (other.computed, other.up_to_date) == (1, 8)
    assert not read(stored)["two_nn"].equals(before)


def test_new_weights_make_values_stale(stored) -> None:
    measure(stored.repository, stored.path, metrics=QUICK[:1])
    stored.add_step(10, stored.values[10][:, ::-1].copy(), weights="others")
    report = measure(stored.repository, stored.path, metrics=QUICK[:1])
    assert (report.computed, report.up_to_date) == (12, 12)


def test_a_new_version_of_a_metric_is_computed_again(stored, monkeypatch) -> None:
    measure(stored.repository, stored.path, metrics=QUICK[:2])
    newer = replace(METRICS["average_cosine"], version=2)
    monkeypatch.setitem(METRICS, "average_cosine", newer)
    report = measure(stored.repository, stored.path, metrics=QUICK[:2])
    assert report.computed == report.up_to_date == 24


def test_a_plan_changes_nothing(stored) -> None:
    before = stored.repository.snapshot_id()
    report = measure(stored.repository, stored.path, plan=True)
    assert report.computed > 0
    assert stored.repository.snapshot_id() == before
    assert read_metrics(stored.repository, stored.path) is None


def test_results_name_the_snapshot_they_came_from(stored) -> None:
    pinned = stored.repository.snapshot_id()
    report = measure(stored.repository, stored.path, metrics=QUICK[:1])
    assert report.snapshot == pinned
    group = stored.repository.read()[f"{stored.path}/metrics"]
    assert set(group["source_snapshot"][:]) == {pinned}


def test_progress_is_told_by_slabs(stored) -> None:
    told: list[tuple[int, int]] = []
    measure(
        stored.repository,
        stored.path,
        metrics=QUICK[:1],
        progress=lambda done, total: told.append((done, total)),
    )
    assert sum(done for done, _ in told) == 6
    assert {total for _, total in told} == {6}


def test_what_was_done_before_a_failure_is_kept(stored, monkeypatch) -> None:
    monkeypatch.setattr(compute, "BATCH_BYTES", 1)
    original = compute.run_task

    def fail_at_layer_two(tasks):
        if tasks[0].slab.depth == 2:
            raise RuntimeError("the power went")
        return original(tasks)

    monkeypatch.setattr(compute, "run_task", fail_at_layer_two)
    with dask.config.set(num_workers=1), pytest.raises(RuntimeError, match="the power went"):
        measure(stored.repository, stored.path, metrics=QUICK[:1], steps=[0])
    kept = read(stored)["average_cosine"]
    assert kept.sel(step=0).notnull().any()
    monkeypatch.undo()
    report = measure(stored.repository, stored.path, metrics=QUICK[:1], steps=[0])
    assert report.up_to_date > 0
    assert report.computed + report.up_to_date == 12


def test_results_are_committed_while_others_are_computed(stored, monkeypatch) -> None:
    monkeypatch.setattr(compute, "BATCH_BYTES", 1)
    monkeypatch.setattr(compute, "COMMIT_SECONDS", 0.0)
    commits = []
    original = compute.write_metrics

    def count(*arguments, **options):
        commits.append(1)
        return original(*arguments, **options)

    monkeypatch.setattr(compute, "write_metrics", count)
    measure(stored.repository, stored.path, metrics=QUICK[:1])
    assert len(commits) == 6


def test_steps_stored_with_values_that_are_not_finite_drop_those_rows(
    memory_uri: str, make_stored: Callable
) -> None:
    stored = make_stored(memory_uri, steps=())
    values = np.random.default_rng(0).standard_normal((3, 500, 8)).astype(np.float32)
    values[1, 3, 2] = np.inf
    stored.add_step(0, values, allow_nonfinite=True)
    measure(stored.repository, stored.path, metrics=QUICK)
    found = read(stored).sel(step=0, population="all")
    assert found["n_dropped_nonfinite"].values.tolist() == [0, 1, 0]
    assert found["n"].values.tolist() == [500, 499, 500]
    assert found["average_cosine"].notnull().all()


def test_the_neighbours_of_every_layer_and_step_are_of_the_same_tokens(stored) -> None:
    same = np.stack([stored.values[0][0]] * 3)
    stored.add_step(20, same)
    stored.add_step(30, same)
    measure(stored.repository, stored.path, metrics=["two_nn"], steps=[20, 30], sample=100)
    found = read(stored)["two_nn"].sel(step=[20, 30], population="content")
    assert len(np.unique(found)) == 1


def test_unknown_names_are_refused_before_anything_is_read(stored) -> None:
    with pytest.raises(UnknownMetricError, match="did you mean 'two_nn'"):
        measure(stored.repository, stored.path, metrics=["twonn"])
    with pytest.raises(UnknownPopulationError, match="did you mean 'content'"):
        measure(stored.repository, stored.path, populations=["contents"])
    with pytest.raises(UnknownNameError, match="step"):
        measure(stored.repository, stored.path, steps=[7])
    with pytest.raises(UnknownNameError, match="layer"):
        measure(stored.repository, stored.path, layers=[9])
    with pytest.raises(UnknownNameError, match="owner--toi"):
        measure(stored.repository, "plays/owner--toi")
    with pytest.raises(SchedulerError, match="'local:N'"):
        measure(stored.repository, stored.path, scheduler="locale")
