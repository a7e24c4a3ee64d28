"""The right to move the branch of a store, where the storage does not compare and swap."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import filelock

from .location import Location
from .translation import translated

LOCK_DIRECTORY = ".actlas"
"""Directory inside a local store that holds lock files; it may be deleted when nobody writes."""


class BranchLock:
    """Held by one writer at a time: a file lock on a disk, nothing on object stores.

    Object stores compare and swap the branch themselves. Icechunk's local storage reads, compares
    and renames, so that without this lock acknowledged commits are lost.

    Args:
        location: Where the store is.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
        directory = location.directory
        self._file = (
            None
            if directory is None
            else filelock.FileLock(directory / LOCK_DIRECTORY / "branch.lock", poll_interval=0.005)
        )

    @property
    def is_held(self) -> bool:
        """Whether this thread holds a file lock."""
        return self._file is not None and self._file.is_locked

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lock; it may be held already.

        Raises:
            StoreError: If the store cannot be written to.
        """
        if self._location.memory_lock is not None:
            with self._location.memory_lock:
                yield
        elif self._file is not None:
            with translated(self._location):
                Path(self._file.lock_file).parent.mkdir(exist_ok=True)
                self._file.acquire()
            try:
                yield
            finally:
                self._file.release()
        else:
            yield
