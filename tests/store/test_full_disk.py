"""A disk that runs full: a clear error, and a store as it was before."""

import contextlib
import errno
import re
import shutil
import subprocess
from datetime import timedelta

import icechunk
import numpy as np
import pytest
import xarray as xr

from store.corpora import CorpusSpec, create_corpus
from store.errors import StoreError, StoreFullError
from store.history import create_tag, tags
from store.metrics import Definition, write_metrics
from store.retention import collect_garbage, drop_activations
from store.write import reserve_step

PATH = "plays/owner--toy"

# What Icechunk 1.1 and 2.x say, the cause being several levels down.
FULL = "x object store error Generic LocalFileSystem error: No space left on device (os error 28)"


@pytest.fixture
def small_disk(tmp_path):
    """A disk of one MiB, where this machine lets us mount one."""
    mount = shutil.which("mount")
    command = [str(mount), "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if mount is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def fill_until_full(repository, toy):
    for step in range(100):
        try:
            toy.ingest(repository, step)
        except StoreFullError as error:
            return range(step), str(error)
    pytest.fail("the disk never ran full")


def test_a_full_disk_keeps_every_complete_step(toy, small_disk):
    repository = toy.prepare(small_disk / "store")
    stored, message = fill_until_full(repository, toy)
    assert re.search(r"[\d,]+ bytes are free.*the store is as it was", message)
    assert stored
    for step in stored:
        toy.assert_stored(repository, step)
    assert toy.stored(repository, len(stored)) is None


def test_a_full_disk_can_be_used_again_once_there_is_room(toy, small_disk):
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1 << 19))
    repository = toy.prepare(small_disk / "store")
    stored, _ = fill_until_full(repository, toy)
    ballast.unlink()
    toy.ingest(repository, len(stored))
    toy.assert_stored(repository, len(stored))


def test_a_disk_with_no_room_for_a_block_says_how_much_it_needs(toy, small_disk):
    repository = toy.prepare(small_disk / "store", attributes={"chunk_rows": 64})
    writer = reserve_step(repository, toy.PATH, 1, identity={})
    free = shutil.disk_usage(small_disk).free
    (small_disk / "ballast").write_bytes(bytes(free - 8192))
    # 4 layers of 50 rows of 64 float32 values: 51,200 bytes.
    with pytest.raises(StoreFullError, match=r"up to 51,200 bytes .* [\d,]+ bytes are free"):
        writer.write_block("residual", 0, toy.values(1, "residual"))
    writer.abandon()
    assert toy.stored(repository, 1) is None


@pytest.mark.parametrize("error", [icechunk.IcechunkError(FULL), OSError(errno.EDQUOT, "quota")])
def test_a_publication_that_finds_the_disk_full(toy, tmp_path, monkeypatch, error):
    repository = toy.prepare(tmp_path / "store")
    toy.ingest(repository, 1)
    writer = reserve_step(repository, toy.PATH, 2, identity={})
    toy.write_all(writer)
    before = repository.snapshot_id()

    def full(*_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("store.durable.sync_filesystem", full)
        with pytest.raises(StoreFullError, match="the store is as it was"):
            writer.commit(provenance={})
    assert repository.snapshot_id() == before
    writer.abandon()
    toy.ingest(repository, 2)
    toy.assert_stored(repository, 2)
    assert np.isnan(repository.read()[toy.PATH]["loss"][0])


def take_all_room(folder):
    with (folder / "ballast").open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 10, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass


def add_corpus(repository):
    spec = CorpusSpec("more", "text", {}, 0, "0")
    create_corpus(repository, spec, texts=["-"], sources=["-"], source_starts=[0])


def add_metrics(repository):
    results = xr.Dataset({"average_cosine": ("step", [0.5])}, {"step": [1]})
    newest, definition = repository.snapshot_id(), Definition("average_cosine", 1)
    write_metrics(repository, PATH, results, snapshot=newest, definitions=[definition])


def replace_step(repository):
    reserve_step(repository, PATH, 1, identity={"variant": 1}, supersede=True).abandon()


CHANGES = {
    "tag": lambda repository: create_tag(repository, "paper-v1"),
    "corpus": add_corpus,
    "metrics": add_metrics,
    "replace": replace_step,
    "drop": lambda repository: drop_activations(repository, PATH, steps=[1]),
}


def test_what_writes_metadata_alone_says_where_there_is_no_room(toy, small_disk):
    repository = toy.prepare(small_disk / "store")
    toy.ingest(repository, 1)
    before = repository.snapshot_id()
    take_all_room(small_disk)
    for name, change in CHANGES.items():
        with pytest.raises(
            StoreFullError, match=rf"{small_disk}/store \([\d,]+ bytes are free\).*Free some"
        ):
            change(repository)
        assert repository.snapshot_id() == before, name
    assert tags(repository) == {}
    assert [path.name for path in (small_disk / "store" / "refs").iterdir()] == ["branch.main"]
    toy.assert_stored(repository, 1)
    (small_disk / "ballast").unlink()
    for change in CHANGES.values():
        change(repository)
    assert tags(repository) == {"paper-v1": before}


@pytest.mark.parametrize("method", ["expire_snapshots", "garbage_collect"])
def test_a_collection_of_garbage_that_finds_the_disk_full(toy, tmp_path, monkeypatch, method):
    repository = toy.prepare(tmp_path / "store")
    toy.ingest(repository, 1)

    def full(*_, **__):
        raise icechunk.IcechunkError(FULL)

    monkeypatch.setattr(icechunk.Repository, method, full)
    with pytest.raises(StoreFullError, match=rf"{tmp_path}/store .*Free some space and run again"):
        collect_garbage(repository, keep_history=timedelta())
    toy.assert_stored(repository, 1)


def test_a_tag_that_cannot_be_written_leaves_nothing(toy, tmp_path, monkeypatch):
    repository = toy.prepare(tmp_path / "store")
    with monkeypatch.context() as patch:
        refused = icechunk.IcechunkError("x object store error Permission denied (os error 13)")
        patch.setattr(icechunk.Repository, "create_tag", lambda *_: raise_(refused))
        with pytest.raises(StoreError, match=r"tag 'a' in .*denied.* Check that the store can"):
            create_tag(repository, "a")
    assert tags(repository) == {}
    assert create_tag(repository, "a") == repository.snapshot_id()


def raise_(error):
    raise error
