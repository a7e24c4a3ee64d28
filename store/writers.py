"""Names of writers: by them a process tells which writers it knows to be dead.

An object store shows nothing of who writes to it but what they wrote. A reservation there holds
until it is old, unless its writer is known to be no more: it gave up in this process, or its own
process on this machine has ended.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from pathlib import Path

_disowned: set[str] = set()


def new_writer() -> str:
    """Return a name that no other writer has: place, process and random id."""
    return f"{_place()}:{os.getpid()}:{secrets.token_hex(8)}"


def disown(writer: str) -> None:
    """Note that a writer of this process has given up, whether or not the store can be told.

    It often cannot: a store that is away is why writers give up. Without this note they would
    keep their own process from the step until their reservation is old.
    """
    _disowned.add(writer)


def is_dead(writer: str) -> bool:
    """Tell whether a writer is known to write no more; of one elsewhere nothing is known."""
    if writer in _disowned:
        return True
    place, _, rest = writer.rpartition(":")[0].rpartition(":")
    if place != _place() or not rest.isdigit():
        return False
    try:
        os.kill(int(rest), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _place() -> str:
    """Return the host, and within it the container, in which a process number means something."""
    space = ""
    with contextlib.suppress(OSError):
        # pid:[4026531836] on Linux; other systems have one space of process numbers.
        space = str(Path("/proc/self/ns/pid").readlink())
    return f"{socket.gethostname()}/{''.join(filter(str.isdigit, space))}"
