"""Who counts as alive where nobody can tell: by the age of what a writer last said."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from store.claims import is_fresh
from store.errors import ReservationLostError, StoreError
from store.heartbeat import Heartbeat
from store.location import locate

HALF_AN_HOUR = timedelta(minutes=30)
BUCKET = locate("s3://bucket/store")


@pytest.mark.parametrize(
    ("minutes", "fresh"),
    [
        (0, True),
        (-29, True),
        (-31, False),
        (5, True),  # a clock that is ahead a little
        (31, False),  # one that is wrong must not block the step for ever
        (60 * 24 * 365, False),
    ],
)
def test_a_reservation_is_fresh_near_the_present(minutes, fresh):
    said = (datetime.now(UTC) + timedelta(minutes=minutes)).isoformat(timespec="seconds")
    assert is_fresh(BUCKET, said, HALF_AN_HOUR) is fresh
    assert not is_fresh(locate("memory://there"), said, HALF_AN_HOUR)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr("store.heartbeat.LEAST_PAUSE", 0.01)


def test_a_reservation_is_renewed_while_nothing_is_written(quick):
    seen = threading.Semaphore(0)
    heartbeat = Heartbeat(BUCKET, seen.release, timedelta(0))
    heartbeat.start()
    for _ in range(3):
        assert seen.acquire(timeout=60)
    heartbeat.stop()
    while seen.acquire(blocking=False):
        pass
    heartbeat.beat_if_due()
    assert not seen.acquire(blocking=False)


def test_a_network_that_fails_once_does_not_end_it(quick):
    seen = threading.Semaphore(0)
    faults = [StoreError("gone"), OSError("gone")]

    def renew():
        if faults:
            raise faults.pop()
        seen.release()

    heartbeat = Heartbeat(BUCKET, renew, timedelta(0))
    heartbeat.start()
    assert seen.acquire(timeout=60)
    heartbeat.stop()


def test_a_step_that_was_taken_over_is_noticed_at_the_next_write(quick):
    tried = threading.Event()

    def renew():
        tried.set()
        raise ReservationLostError("taken over")

    heartbeat = Heartbeat(BUCKET, renew, timedelta(0))
    heartbeat.start()
    assert tried.wait(60)
    for _ in range(2):
        with pytest.raises(ReservationLostError, match="taken over"):
            heartbeat.beat_if_due()
    heartbeat.stop()


def test_a_store_on_a_disk_needs_none(tmp_path):
    before = set(threading.enumerate())
    heartbeat = Heartbeat(locate(tmp_path), pytest.fail, timedelta(0))
    heartbeat.start()
    heartbeat.beat_if_due()
    assert set(threading.enumerate()) <= before
    heartbeat.stop()
