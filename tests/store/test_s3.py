"""The same store in an object store: a real server, and a network that misbehaves."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import faulty_proxy
import numpy as np
import pytest

from store.errors import (
    ReservationLostError,
    StepReservedError,
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
)
from store.repository import Repository
from store.write import reserve_step

NOW = timedelta(0)


@pytest.fixture
def proxy(s3_uri, s3_server, monkeypatch):
    """A proxy between us and the server, well-behaved until told otherwise."""
    with faulty_proxy.serve(s3_server) as (endpoint, proxy):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        yield proxy


def test_a_store_in_a_bucket_is_a_store(toy, s3_uri, monkeypatch):
    with pytest.raises(StoreNotFoundError, match="nothing is there"):
        Repository.open(s3_uri)
    repository = toy.prepare(s3_uri)
    toy.ingest(repository, 3)
    toy.assert_stored(Repository.open(s3_uri), 3)
    with pytest.raises(StoreExistsError, match="something is there already"):
        Repository.create(s3_uri)


def test_anonymous_readers_read_and_cannot_write(toy, s3_uri, monkeypatch):
    toy.ingest(toy.prepare(s3_uri), 3)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    anonymous = Repository.open(s3_uri)
    toy.assert_stored(anonymous, 3)
    with pytest.raises(StoreError, match=f"cannot write to the store at {s3_uri}"):
        toy.ingest(anonymous, 4)


def test_writers_of_different_and_of_equal_steps(toy, s3_uri, start_toy):
    repository = toy.prepare(s3_uri, step_capacity=3)
    groups = [(0, 4), (1, 4), (2, 4), (3, 4)]
    processes = [start_toy(repository.uri, 0, *steps) for steps in groups]
    reports = [report for process in processes for report in process.rest() if report != "ready"]
    assert [process.process.exitcode for process in processes] == [0] * 4
    counts = Counter(reports)
    assert all(counts["stored", step] == 1 for step in range(5))
    assert counts["already", 4] == 3
    for step in range(5):
        toy.assert_stored(repository, step)


def test_racing_creations_agree(toy, s3_uri):
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(Repository.open_or_create, [s3_uri] * 4))
    assert len({repository.snapshot_id() for repository in found}) == 1


def test_a_writer_that_was_killed_on_this_machine_blocks_nobody(toy, s3_uri, start_toy):
    repository = toy.prepare(s3_uri)
    process = start_toy(repository.uri, 0, "written", 7)
    assert [process.line(), process.line()] == ["ready", ("written", 7)]
    process.kill()
    toy.ingest(repository, 7)
    toy.assert_stored(repository, 7)


def unreachable(*_):
    raise OSError("away")


def test_a_writer_that_gave_up_while_the_store_was_away_does_not_block_itself(
    toy, s3_uri, monkeypatch
):
    repository = toy.prepare(s3_uri)
    with reserve_step(repository, toy.PATH, 1, identity={"variant": 0}):
        monkeypatch.setattr(repository, "update", unreachable)
    toy.ingest(Repository.open(s3_uri), 1)
    toy.assert_stored(repository, 1)


def test_a_reservation_is_respected_until_it_is_old(toy, s3_uri):
    repository = toy.prepare(s3_uri)
    slow = reserve_step(repository, toy.PATH, 1, identity={"variant": 0})
    toy.write_all(slow)
    with pytest.raises(StepReservedError, match="is being stored by"):
        toy.ingest(repository, 1)
    toy.ingest(repository, 1, takeover_after=NOW)
    with pytest.raises(ReservationLostError, match="was taken over by"):
        slow.commit(provenance={"revision": "slow"})
    slow.abandon()
    toy.assert_stored(repository, 1)
    assert repository.read()[toy.PATH]["revision"][0].item() == "step1"


def test_a_writer_renews_its_reservation(toy, s3_uri):
    repository = toy.prepare(s3_uri)
    options = {"identity": {}, "takeover_after": NOW}
    with reserve_step(repository, toy.PATH, 1, **options) as writer:
        reserved_at = repository.read()[toy.PATH]["reserved_at"][0]
        time.sleep(1)
        toy.write_all(writer)
        assert repository.read()[toy.PATH]["reserved_at"][0] > reserved_at
        writer.commit(provenance={})
    toy.assert_stored(repository, 1)


def test_a_writer_notices_on_renewal_that_it_was_taken_over(toy, s3_uri):
    repository = toy.prepare(s3_uri)
    options = {"identity": {"variant": 0}, "takeover_after": NOW}
    slow = reserve_step(repository, toy.PATH, 1, **options)
    quick = reserve_step(repository, toy.PATH, 1, **options)
    with pytest.raises(ReservationLostError, match="was taken over by"):
        toy.write_all(slow)
    slow.abandon()
    toy.write_all(quick)
    quick.commit(provenance={})
    toy.assert_stored(repository, 1)


@pytest.mark.parametrize("fault", ["503", "cut", "slow"])
@pytest.mark.parametrize(("method", "part"), [("PUT", "/chunks/"), ("PUT", "/refs/")])
def test_a_network_that_recovers_costs_time_alone(toy, s3_uri, proxy, fault, method, part):
    repository = toy.prepare(s3_uri)
    proxy.fail_once(fault, method=method, part=part)
    toy.ingest(repository, 1)
    assert [item[0] for item in proxy.faults] == [fault]
    toy.assert_stored(repository, 1)


@pytest.mark.parametrize("part", ["/chunks/", "/snapshots/", "/refs/"])
def test_a_lost_answer_is_not_a_lost_or_doubled_step(toy, s3_uri, proxy, part):
    repository = toy.prepare(s3_uri)
    writer = reserve_step(repository, toy.PATH, 1, identity={"variant": 0})
    proxy.fail_once("lost", method="PUT", part=part)
    with writer:
        toy.write_all(writer)
        writer.commit(provenance={})
    assert len(proxy.faults) == 1
    toy.assert_stored(repository, 1)
    assert np.count_nonzero(repository.read()[toy.PATH]["step"][:] == 1) == 1


def test_a_network_that_stays_away_leaves_the_store_as_it_was(toy, s3_uri, proxy):
    repository = toy.prepare(s3_uri)
    toy.ingest(repository, 1)
    before = repository.snapshot_id()
    writer = reserve_step(repository, toy.PATH, 2, identity={"variant": 0})
    proxy.fail_once("cut", method="PUT", part="/chunks/", times=10_000)
    with pytest.raises(StoreError, match="cannot write to the store"):
        toy.write_all(writer)
    proxy.fault = lambda *_: None
    writer.abandon()
    assert repository.snapshot_id() != before
    toy.assert_stored(repository, 1)
    assert toy.stored(repository, 2) is None
    toy.ingest(repository, 2)
    toy.assert_stored(repository, 2)
