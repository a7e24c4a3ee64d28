"""A copy of a store is a store, whatever happened to the original while it was made."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys

import icechunk
import numpy as np
import pytest
import zarr

STEPS = 6


@pytest.fixture(scope="module")
def backup(deploy):
    specification = importlib.util.spec_from_file_location("backup", deploy / "backup.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def storage(path):
    return icechunk.local_filesystem_storage(str(path))


def write(path, step):
    session = icechunk.Repository.open(storage(path)).writable_session("main")
    zarr.open_group(session.store)["values"][step] = step + 1.0
    return session.commit(f"step {step}")


def steps_held(path):
    """Read every value of the newest snapshot; a chunk that is missing raises."""
    store = icechunk.Repository.open(storage(path)).readonly_session("main").store
    values = zarr.open_group(store, mode="r")["values"][:]
    return [step for step in range(STEPS) if np.all(values[step] == step + 1)]


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "store"
    session = icechunk.Repository.create(storage(path)).writable_session("main")
    group = zarr.create_group(session.store)
    # 4 KiB a chunk make objects of their own; what is smaller goes into the manifests.
    group.create_array(
        "values", shape=(STEPS, 1024), chunks=(1, 1024), dtype="f4", compressors=None
    )
    session.commit("empty")
    write(path, 0)
    return path


def test_a_copy_holds_what_the_store_held_when_it_began(backup, store, tmp_path):
    target = tmp_path / "copy"
    pointers = backup.read_pointers(store)
    write(store, 1)
    backup.copy_objects(store, target)
    write(store, 2)
    backup.publish(pointers, target)
    assert steps_held(target) == [0]
    assert steps_held(store) == [0, 1, 2]


def test_a_second_run_copies_what_is_new_and_nothing_else(backup, store, tmp_path):
    target = tmp_path / "copy"
    backup.back_up(store, target)
    write(store, 1)
    # One chunk, one manifest, one snapshot, one transaction log.
    assert backup.back_up(store, target)[0] == 4
    assert backup.back_up(store, target) == (0, 0)
    assert steps_held(target) == [0, 1]


def test_a_run_that_was_killed_leaves_the_previous_copy(backup, store, tmp_path, monkeypatch):
    target = tmp_path / "copy"
    backup.back_up(store, target)
    write(store, 1)

    def killed(source, destination):
        destination.write_bytes(source.read_bytes()[:10])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", killed)
        with pytest.raises(KeyboardInterrupt):
            backup.back_up(store, target)
    assert steps_held(target) == [0]
    backup.back_up(store, target)
    assert steps_held(target) == [0, 1]


def test_branches_and_tags_that_were_deleted_go_from_the_copy_too(backup, store, tmp_path):
    target = tmp_path / "copy"
    repository = icechunk.Repository.open(storage(store))
    repository.create_branch("try", repository.lookup_branch("main"))
    backup.back_up(store, target)
    repository.delete_branch("try")
    backup.back_up(store, target)
    assert icechunk.Repository.open(storage(target)).list_branches() == {"main"}


def test_a_restored_store_can_be_written_to(deploy, store, tmp_path):
    script, copy = deploy / "backup.py", tmp_path / "copy"
    subprocess.run([sys.executable, script, store, copy], check=True, capture_output=True)
    shutil.rmtree(store)
    subprocess.run([sys.executable, script, copy, store], check=True, capture_output=True)
    write(store, 1)
    assert steps_held(store) == [0, 1]


def test_what_is_not_a_store_is_refused(deploy, tmp_path):
    (tmp_path / "empty").mkdir()
    command = [sys.executable, deploy / "backup.py", tmp_path / "empty", tmp_path / "copy"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1
    assert "is not a store: expected a folder with refs/ and snapshots/" in result.stderr
    assert not (tmp_path / "copy").exists()
