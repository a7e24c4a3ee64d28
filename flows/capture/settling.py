"""When the files of a checkpoint last changed: whether something may still be writing them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from flows.capture.checkpoints import Checkpoint
from flows.capture.errors import CheckpointError
from flows.capture.integrity import (
    CONFIG_FILE,
    GENERATION_FILE,
    INDEX_SUFFIX,
    PROCESSOR_FILES,
    TOKENIZER_FILES,
    WEIGHT_FILES,
)

_SUFFIXES: Final = frozenset(Path(name).suffix for name in WEIGHT_FILES)
_READ: Final = frozenset({CONFIG_FILE, GENERATION_FILE, *PROCESSOR_FILES, *TOKENIZER_FILES})


def last_change(checkpoint: Checkpoint) -> float | None:
    """Return when a file of a checkpoint last changed, in seconds since the epoch.

    The time of change counts as well as that of modification, since a copy may carry the latter
    over from its original. None for what is not in a folder of its own: on the Hub, or drawn.
    """
    if checkpoint.directory is None or checkpoint.random is not None:
        return None
    if checkpoint.gguf is not None:
        return _changed((checkpoint.directory / checkpoint.gguf).stat())
    with os.scandir(checkpoint.directory) as entries:
        times = [_changed(entry.stat()) for entry in entries]
    return max([*times, _changed(checkpoint.directory.stat())])


def is_settled(checkpoint: Checkpoint, settle: float) -> bool:
    """Tell whether nothing has written to a checkpoint for a while.

    Args:
        checkpoint: One that was found.
        settle: Seconds of rest after which a writer counts as done. A clock of the file system
            that is ahead of ours makes it wait longer, never shorter.
    """
    changed = last_change(checkpoint)
    return changed is None or time.time() - changed >= settle


def file_states(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Return name, size, times and inode of each file that a checkpoint is loaded from.

    Two equal answers say that none of them was written to in between. Empty for what is not here.

    Raises:
        CheckpointError: If the files have gone since the checkpoint was found.
    """
    if checkpoint.directory is None:
        return ()
    try:
        with os.scandir(checkpoint.directory) as entries:
            found = [entry for entry in entries if _is_read(entry.name, checkpoint)]
            return tuple(sorted(f"{entry.name} {file_state(entry.stat())}" for entry in found))
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{checkpoint.directory} was there and is gone: {error.filename} is missing; a "
            "trainer may have deleted it, as with save_total_limit"
        ) from error


def file_state(found: os.stat_result) -> str:
    """Return what is another after each writing to a file."""
    return f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino}"


def _is_read(name: str, checkpoint: Checkpoint) -> bool:
    if checkpoint.gguf is not None:
        return name == checkpoint.gguf
    weights = Path(name).suffix in _SUFFIXES or name.endswith(INDEX_SUFFIX)
    return name in _READ or weights


def _changed(found: os.stat_result) -> float:
    return max(found.st_mtime, found.st_ctime)
