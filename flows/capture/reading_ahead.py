"""Weights read into the memory that the system has to spare, before it is their turn.

They wait as pages of their files, which a load finds there and which the system may drop whenever
something else needs the room. The model is built at its turn: building changes settings of the
process, such as the default dtype, which a running model reads.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Final

from flows.capture.checkpoints import Checkpoint
from flows.capture.integrity import check_gguf, weight_files

_MEMORY: Final = Path("/proc/meminfo")
_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
"""What a container may use, "max" where it is not limited."""

_TIMES: Final = 3
"""How often weights have to fit: the model that runs, the pages, and the model made of them."""


def read_ahead(checkpoint: Checkpoint) -> bool:
    """Read the weights of a checkpoint, unless there is no room for them.

    Args:
        checkpoint: One whose files are here.

    Returns:
        Whether they were read.

    Raises:
        CheckpointError: If files are missing or damaged.
    """
    directory = checkpoint.directory
    if directory is None or checkpoint.random is not None:
        return False
    if checkpoint.gguf is not None:
        files = [check_gguf(directory / checkpoint.gguf)]
    else:
        files = weight_files(directory)
    size = sum(file.stat().st_size for file in files)
    if _TIMES * size > available_memory():
        return False
    for file in files:
        with file.open("rb") as stream:
            # The call comes back once every page is there; leaving it unmapped drops none.
            flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
            mmap.mmap(stream.fileno(), 0, flags=flags, prot=mmap.PROT_READ).close()
    return True


def available_memory() -> int:
    """Return the bytes that can be had without swapping; 0 where the system does not tell."""
    try:
        entries = dict(line.split(":", 1) for line in _MEMORY.read_text().splitlines())
        available = 1024 * int(entries["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return 0
    try:
        return min(available, int(_LIMIT.read_text()))
    except (OSError, ValueError):
        return available
