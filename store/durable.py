"""Making what was written to a local disk survive a power loss."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import icechunk

from .configuration import BRANCH


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
        if sync(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(directory))
    finally:
        os.close(descriptor)


def _sync_directory(directory: Path) -> None:
    """Write the files of one directory, and the directory itself, to the disk."""
    for path in (*directory.iterdir(), directory):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _syncfs() -> Callable[[int], int] | None:
    """Return the C library's ``syncfs``, which Linux has and macOS has not."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    return None if function is None else lambda descriptor: int(function(descriptor))
