"""Files that are there whole, or as they were before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(file: Path) -> Iterator[Path]:
    """Let a file be written beside its place, and put it there once it is whole.

    Whatever ends the block before its time, a full disk or the user, leaves what was there.

    Args:
        file: The file; missing folders are made. Where it is a link, what it leads to is written.

    Yields:
        The path to write to, in the same folder and with the same suffix.
    """
    file = Path(os.path.realpath(file))
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{file.stem}.{os.getpid()}{file.suffix}")
    try:
        yield aside
        aside.replace(file)
    finally:
        aside.unlink(missing_ok=True)
