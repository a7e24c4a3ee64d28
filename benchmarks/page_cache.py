"""Reading from the disk what the kernel would hold in memory."""

from __future__ import annotations

import os
from pathlib import Path

from store.durable import sync_filesystem


def forget(place: Path) -> None:
    """Drop the files below a directory from the page cache, once they are on the disk."""
    sync_filesystem(place)
    for path in place.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
