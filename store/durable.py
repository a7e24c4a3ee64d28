"""Making what was written to a local disk survive a power loss."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path


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


def sync_directory(directory: Path) -> None:
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
