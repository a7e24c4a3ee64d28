"""Writing chunks to their disk while the next ones are made, so that a commit waits for few."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final

from .durable import sync_filesystem

SYNCED_EARLY: Final = 32 << 20
"""Bytes from which the disk is set to work: in fewer, what each call costs is felt."""


@cache
def _thread(_process: int) -> ThreadPoolExecutor:
    """Return the one thread of a process that waits for disks."""
    return ThreadPoolExecutor(1, "actlas-early-sync")


class EarlySync:
    """Keeps the disk of a store at work while a transaction is written.

    The system by itself lets written files lie in memory for half a minute, or until they are a
    tenth of it, and then a commit has to wait for all of them.

    Args:
        directory: Directory of the store, None where it is not on a disk.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._unsynced = 0
        self._under_way: Future[None] | None = None

    def note(self, stored: int) -> None:
        """Take note of so many bytes more, and begin to write them if the disk has nothing to do.

        Raises:
            OSError: If the disk reported an error.
        """
        self._unsynced += stored
        if self._directory is None or self._unsynced < SYNCED_EARLY:
            return
        if self._under_way is not None and not self._under_way.done():
            return
        self.finish()
        self._unsynced = 0
        self._under_way = _thread(os.getpid()).submit(sync_filesystem, self._directory)

    def finish(self) -> None:
        """Wait for the disk.

        Raises:
            OSError: If it reported an error: the system tells one caller alone.
        """
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()
