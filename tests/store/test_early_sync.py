"""The disk is at work while a step is written, and what it reports is not lost."""

import errno
import threading

import pytest

import store.early_sync
from store.errors import StoreFullError
from store.write import reserve_step


@pytest.fixture
def synced(monkeypatch):
    """Directories that were synced early, each chunk being reason enough."""
    found = []
    monkeypatch.setattr(store.early_sync, "SYNCED_EARLY", 1)
    monkeypatch.setattr(store.early_sync, "sync_filesystem", found.append)
    return found


def test_chunks_are_synced_while_a_step_is_written(toy, tmp_path, synced):
    repository = toy.prepare(tmp_path / "store")
    writer = reserve_step(repository, toy.PATH, 1, identity={})
    toy.write_all(writer)
    assert synced
    assert set(synced) == {tmp_path / "store"}
    writer.commit(provenance={})
    toy.assert_stored(repository, 1)


def test_a_store_in_memory_has_no_disk(toy, memory_uri, synced):
    toy.ingest(toy.prepare(memory_uri), 1)
    assert synced == []


def test_little_is_left_to_the_commit(toy, tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(store.early_sync, "sync_filesystem", synced.append)
    toy.ingest(toy.prepare(tmp_path / "store"), 1)
    assert synced == []


def test_a_commit_waits_for_the_disk_and_says_what_it_reports(toy, tmp_path, synced, monkeypatch):
    """Of an error in writing behind, the system tells one caller, and this one is in a thread."""
    repository = toy.prepare(tmp_path / "store")
    begun, released = threading.Event(), threading.Event()

    def full(_):
        begun.set()
        released.wait()
        raise OSError(errno.ENOSPC, "No space left on device")

    writer = reserve_step(repository, toy.PATH, 2, identity={})
    before = repository.snapshot_id()
    monkeypatch.setattr(store.early_sync, "sync_filesystem", full)
    toy.write_all(writer)
    assert begun.wait(10)
    threading.Timer(0.1, released.set).start()
    with pytest.raises(StoreFullError, match="the store is as it was"):
        writer.commit(provenance={})
    assert repository.snapshot_id() == before
    writer.abandon()
    monkeypatch.undo()
    toy.ingest(repository, 2)
    toy.assert_stored(repository, 2)
