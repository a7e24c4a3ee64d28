"""What is published is on the disk first, on systems with and without ``syncfs``."""

import ctypes
import errno
import fcntl
import os
from types import SimpleNamespace

import pytest

from store import durable


@pytest.fixture
def calls(monkeypatch):
    """What was asked of a system other than this one; ``give`` is what its C library has."""
    seen = []
    monkeypatch.setattr(os, "sync", lambda: seen.append("sync"))
    monkeypatch.setattr(os, "fsync", lambda _descriptor: seen.append("fsync"))

    def give(name=None, result=0):
        functions = (
            {} if name is None else {name: lambda *args: seen.append((name, *args[1:])) or result}
        )
        monkeypatch.setattr(ctypes, "CDLL", lambda _name, **_options: SimpleNamespace(**functions))
        return seen

    return give


def test_linux_writes_one_file_system(calls, tmp_path):
    seen = calls("syncfs")
    durable.sync_filesystem(tmp_path)
    assert seen == [("syncfs",)]


def test_macos_writes_one_volume_to_the_platter_and_waits(calls, tmp_path):
    seen = calls("fsync_volume_np")
    durable.sync_filesystem(tmp_path)
    assert seen == [("fsync_volume_np", 3)]  # SYNC_VOLUME_FULLSYNC 1, SYNC_VOLUME_WAIT 2


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.EIO])
def test_a_volume_that_cannot_is_not_a_disk_that_fails(calls, tmp_path, monkeypatch, number):
    seen = calls("fsync_volume_np", result=-1)
    monkeypatch.setattr(ctypes, "get_errno", lambda: number)
    if number == errno.EIO:
        with pytest.raises(OSError, match="Input/output error") as caught:
            durable.sync_filesystem(tmp_path)
        assert caught.value.filename == str(tmp_path)
    else:
        durable.sync_filesystem(tmp_path)
        assert seen[1:] == ["sync"]


def test_elsewhere_everything_is_written(calls, tmp_path):
    seen = calls()
    durable.sync_filesystem(tmp_path)
    assert seen == ["sync"]


def test_a_file_goes_through_the_cache_of_the_drive_where_fsync_does_not(calls, monkeypatch):
    seen = calls()
    durable.flush_to_disk(0)
    assert seen == ["fsync"]
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda *args: seen.append(args[1]))
    durable.flush_to_disk(0)
    assert seen == ["fsync", 51]

    def unsupported(*_args):
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(fcntl, "fcntl", unsupported)
    durable.flush_to_disk(0)
    assert seen == ["fsync", 51, "fsync"]
