"""Making what was written to a local disk survive a power loss."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import icechunk

from .configuration import BRANCH

_TO_THE_PLATTER_AND_WAIT: Final = 0x01 | 0x02
"""``SYNC_VOLUME_FULLSYNC | SYNC_VOLUME_WAIT`` of macOS: without, nothing is on the disk yet."""

_UNSUPPORTED: Final = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOTTY, errno.EINVAL)


def publish(
    repository: icechunk.Repository, session: icechunk.Session, directory: Path, message: str
) -> str:
    """Commit a transaction so that a power loss leaves it there entirely, or not at all.

    The branch moves last: it never names a snapshot that is not on the disk. The caller holds the
    lock of the store, and the transaction is based on the tip of the branch.

    Args:
        repository: The store, as Icechunk sees it.
        session: The transaction; it is used up.
        directory: Directory of the store.
        message: One line for the history.

    Returns:
        The id of the new snapshot.

    Raises:
        OSError: If the disk reports an error.
        icechunk.IcechunkError: If the branch moved although the lock is held.
    """
    tip = session.snapshot_id
    snapshot = session.flush(message)
    sync_filesystem(directory)
    repository.reset_branch(BRANCH, snapshot, from_snapshot_id=tip)
    reference = directory / "refs" / f"branch.{BRANCH}"
    if reference.is_dir():
        _sync_directory(reference)
    else:  # Icechunk's second format keeps its branches elsewhere.
        sync_filesystem(directory)
    return str(snapshot)


def sync_filesystem(directory: Path) -> None:
    """Write everything that is dirty on the file system of a directory to its disk.

    Icechunk itself never calls ``fsync``, and its objects are too many for one call each.

    Raises:
        OSError: If the disk reports an error.
    """
    sync = _syncfs()
    if sync is None:
        os.sync()
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        failed = sync(descriptor) != 0
        number = ctypes.get_errno()
    finally:
        os.close(descriptor)
    if failed and number in _UNSUPPORTED:
        os.sync()
    elif failed:
        raise OSError(number, os.strerror(number), str(directory))


def flush_to_disk(descriptor: int) -> None:
    """Write a file to the disk itself, where ``fsync`` leaves it in the cache of the drive (macOS).

    Raises:
        OSError: If the disk reports an error.
    """
    whole = getattr(fcntl, "F_FULLFSYNC", None)
    if whole is not None:
        try:
            fcntl.fcntl(descriptor, whole)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
        else:
            return
    os.fsync(descriptor)


def _sync_directory(directory: Path) -> None:
    """Write the files of one directory, and the directory itself, to the disk."""
    for path in (*directory.iterdir(), directory):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            flush_to_disk(descriptor)
        finally:
            os.close(descriptor)


def _syncfs() -> Callable[[int], int] | None:
    """Return what writes a file system to its disk: of Linux, or of macOS; None elsewhere."""
    library = ctypes.CDLL(None, use_errno=True)
    linux, macos = (getattr(library, name, None) for name in ("syncfs", "fsync_volume_np"))
    if linux is not None:
        return lambda descriptor: int(linux(descriptor))
    if macos is not None:
        return lambda descriptor: int(macos(descriptor, _TO_THE_PLATTER_AND_WAIT))
    return None
