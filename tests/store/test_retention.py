from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import xarray as xr

from store import open_store, retention
from store.catalogue import catalogue, find_step
from store.errors import StoreError, UnknownNameError
from store.history import create_tag, history
from store.metrics import Definition, read_metrics, write_metrics
from store.retention import collect_garbage, drop_activations
from store.verify import census
from store.write import reserve_step

SITES = ("residual", "final_norm")


@pytest.fixture
def repository(toy, disk_repository):
    for step in (0, 8, 64):
        toy.ingest(disk_repository, step)
    return disk_repository


def steps_of(repository, toy):
    return open_store(repository.uri)[toy.PATH]["step"].values.tolist()


def test_dropped_steps_are_gone_from_the_present_only(repository, toy):
    before = repository.snapshot_id()
    dropped = drop_activations(repository, toy.PATH, steps=[8])
    assert [(one.step, one.sites, one.sites_left) for one in dropped] == [(8, SITES, ())]
    assert steps_of(repository, toy) == [0, 64]
    earlier = open_store(repository.uri, snapshot=before)[toy.PATH]
    np.testing.assert_array_equal(earlier["residual"].sel(step=8), toy.values(8, "residual"))
    assert census(repository) == []


def test_a_dropped_step_can_be_ingested_again(repository, toy):
    drop_activations(repository, toy.PATH, steps=[8])
    toy.ingest(repository, 8, variant=1)
    toy.assert_stored(repository, 8, variant=1)
    assert census(repository) == []


def test_a_dropped_site_leaves_the_others(repository, toy):
    (held,) = catalogue(repository)
    dropped = drop_activations(repository, toy.PATH, steps=[0, 64], sites=["final_norm"])
    assert [(one.step, one.sites_left) for one in dropped] == [
        (0, ("residual",)),
        (64, ("residual",)),
    ]
    model = open_store(repository.uri)[toy.PATH]
    assert np.isnan(model["final_norm"].sel(step=0)).all()
    np.testing.assert_array_equal(model["residual"].sel(step=64), toy.values(64, "residual"))
    np.testing.assert_array_equal(model["final_norm"].sel(step=8), toy.values(8, "final_norm"))
    (left,) = catalogue(repository)
    assert left.stored_bytes == held.stored_bytes - sum(one.stored_bytes for one in dropped)
    assert drop_activations(repository, toy.PATH, steps=[0], sites=["final_norm"]) == []


def test_values_that_are_not_finite_are_counted_without_what_was_dropped(repository, toy):
    with reserve_step(
        repository, toy.PATH, 9, identity={"variant": 0}, allow_nonfinite=True
    ) as writer:
        for site in SITES:
            values = toy.values(9, site)
            values[..., :3, 0] = np.nan
            writer.write_block(site, 0, values)
        writer.commit(provenance={})
    drop_activations(repository, toy.PATH, steps=[9], sites=["residual"])
    # Three rows of the final norm; four layers of three rows went.
    assert find_step(repository, toy.PATH, 9).nonfinite == 3
    assert census(repository) == []


def test_metrics_stay(repository, toy):
    results = xr.Dataset({"average_cosine": ("step", [0.5])}, {"step": [8]})
    write_metrics(
        repository,
        toy.PATH,
        results,
        snapshot=repository.snapshot_id(),
        definitions=[Definition("average_cosine", 1)],
    )
    drop_activations(repository, toy.PATH)
    assert steps_of(repository, toy) == []
    assert read_metrics(repository, toy.PATH)["average_cosine"].sel(step=8) == 0.5


def test_a_dry_run_says_what_would_go_and_changes_nothing(repository, toy):
    before = repository.snapshot_id()
    planned = drop_activations(repository, toy.PATH, steps=[8], dry_run=True)
    assert repository.snapshot_id() == before
    assert planned == drop_activations(repository, toy.PATH, steps=[8])
    # 4 x 50 x 64 and 50 x 64 random float32 values: hardly compressible.
    assert 45_000 < planned[0].stored_bytes < 65_000


def test_what_is_not_there_cannot_be_dropped(repository, toy):
    with pytest.raises(UnknownNameError, match="no step 9 in plays/owner--toy; there are: 0, 8"):
        drop_activations(repository, toy.PATH, steps=[9])
    with pytest.raises(UnknownNameError, match=r"no site 'residul' .*did you mean 'residual'"):
        drop_activations(repository, toy.PATH, sites=["residul"])
    with pytest.raises(UnknownNameError, match="no model 'owner--tyo'"):
        drop_activations(repository, "plays/owner--tyo")


def later(monkeypatch, **elapsed):
    """Let time pass: what was written up to now is old."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(**elapsed)

    monkeypatch.setattr(retention, "datetime", Clock)


def test_what_only_history_holds_goes_when_history_lets_go(repository, toy, monkeypatch):
    dropped = drop_activations(repository, toy.PATH, steps=[8])
    later(monkeypatch, days=3)
    assert collect_garbage(repository).freed_bytes == 0
    planned = collect_garbage(repository, keep_history=timedelta(days=2), dry_run=True)
    done = collect_garbage(repository, keep_history=timedelta(days=2))
    assert done.freed_bytes >= dropped[0].stored_bytes
    assert planned.expired == done.expired != ()
    assert steps_of(repository, toy) == [0, 64]
    assert census(repository) == []
    assert len(history(repository)) <= 2


def test_a_tag_keeps_its_snapshot(repository, toy, monkeypatch):
    tagged = create_tag(repository, "paper-v1")
    drop_activations(repository, toy.PATH, steps=[8])
    later(monkeypatch, days=3)
    collect_garbage(repository, keep_history=timedelta(days=2))
    model = open_store(repository.uri, tag="paper-v1")[toy.PATH]
    assert open_store(repository.uri, tag="paper-v1").attrs["snapshot"] == tagged
    np.testing.assert_array_equal(model["residual"].sel(step=8), toy.values(8, "residual"))


def test_young_objects_are_safe(repository, toy):
    drop_activations(repository, toy.PATH, steps=[8])
    done = collect_garbage(repository, keep_history=timedelta(0))
    assert (done.objects, done.freed_bytes, done.expired) == (0, 0, ())
    with pytest.raises(StoreError, match=r"a margin of 0:00:01 could delete .* at least 0:10:00"):
        collect_garbage(repository, margin=timedelta(seconds=1))


def test_a_writer_alive_keeps_its_objects_however_old(repository, toy, monkeypatch):
    writer = reserve_step(repository, toy.PATH, 99, identity={})
    toy.write_all(writer)
    later(monkeypatch, days=30)
    done = collect_garbage(repository)
    assert done.freed_bytes < 10_000
    writer.commit(provenance={})
    toy.assert_stored(repository, 99)
    assert census(repository) == []


def test_what_a_dead_writer_left_is_collected(repository, toy, monkeypatch):
    writer = reserve_step(repository, toy.PATH, 99, identity={})
    toy.write_all(writer)
    writer.abandon()
    later(monkeypatch, days=30)
    planned = collect_garbage(repository, dry_run=True)
    done = collect_garbage(repository)
    assert (planned.objects, planned.freed_bytes) == (done.objects, done.freed_bytes)
    assert done.freed_bytes > 40_000
    assert census(repository) == []


def test_a_fresh_store_has_no_garbage(toy, memory_uri):
    repository = toy.prepare(memory_uri)
    assert collect_garbage(repository, margin=timedelta(days=1)).objects == 0
    assert datetime.now(UTC) > history(repository)[0].written_at
