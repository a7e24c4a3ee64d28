"""SHA-256 of files that are looked at again and again, read only when they have changed."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

from flows.capture.errors import CheckpointError
from flows.capture.integrity import file_sha256
from flows.capture.settling import file_state

Digest: TypeAlias = Callable[[Path], str]
"""What gives the SHA-256 of a file: `file_sha256`, or a `DigestCache`."""

CACHE_VARIABLE: Final = "ACTLAS_CACHE"

_RACY_SECONDS: Final = 2.0
"""Age below which a file may change once more within the resolution of its times."""


class DigestCache:
    """Digests by path, size, times and inode, kept between processes.

    A file whose size, inode, time of modification and time of change (which no program can set)
    are those of the last time has the same content. A poll of a hundred checkpoints so reads a
    hundred small files, not the weights. What cannot be kept is computed anew.

    Args:
        folder: Where digests are kept; by default ``$ACTLAS_CACHE``, or ``actlas`` in the user's
            cache folder.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = (folder or _default_folder()) / "digests"
        self._known: dict[Path, str] = {}

    def __call__(self, file: Path) -> str:
        """Return the SHA-256 of a file.

        Raises:
            CheckpointError: If the file changes while it is read.
        """
        resolved = file.resolve()
        before = file_state(resolved.stat())
        entry = self._known.get(resolved) or self._read(resolved)
        state, _, digest = entry.rpartition(" ")
        if state == before:
            self._known[resolved] = entry
            return digest
        digest = file_sha256(resolved)
        if file_state(resolved.stat()) != before:
            raise CheckpointError(f"{file} changed while it was read: wait until it is whole")
        self._keep(resolved, f"{before} {digest}")
        return digest

    def _read(self, resolved: Path) -> str:
        try:
            return self._place(resolved).read_text()
        except (OSError, UnicodeDecodeError):
            return ""

    def _keep(self, resolved: Path, entry: str) -> None:
        found = resolved.stat()
        if time.time() - max(found.st_mtime, found.st_ctime) < _RACY_SECONDS:
            return
        self._known[resolved] = entry
        place = self._place(resolved)
        aside = place.with_name(f"{place.name}.{os.getpid()}")
        with suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            aside.write_text(entry)
            aside.replace(place)

    def _place(self, resolved: Path) -> Path:
        name = hashlib.sha256(os.fsencode(resolved)).hexdigest()
        return self._folder / name[:2] / name


def _default_folder() -> Path:
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given)
    caches = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(caches) if caches else Path.home() / ".cache") / "actlas"
    except RuntimeError:  # A container's user may have no home.
        return Path(os.devnull)
