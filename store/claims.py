"""Who is alive: a writer holds the claim to its slot for as long as its process lives."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import filelock

from .branch_lock import LOCK_DIRECTORY
from .location import Location

_memory: dict[tuple[str, str, int], threading.Lock] = {}


class Claim:
    """The right to write to one slot of one model's group, until it is released."""

    def __init__(self, lock: threading.Lock | filelock.BaseFileLock | None = None) -> None:
        self._lock = lock

    def release(self) -> None:
        """Let others have the slot; once is enough, twice does no harm."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def claim_slot(location: Location, path: str, slot: int) -> Claim | None:
    """Claim a slot, unless a living writer has it.

    On a disk this is a file lock, which the system frees the moment its process dies, however it
    dies. In an object store nobody can tell, and every claim succeeds: there the age of the
    reservation decides (:func:`is_fresh`).

    Args:
        location: Where the store is.
        path: Path of the model's group.
        slot: Index on the step axis.
    """
    if location.memory_lock is not None:
        held = _memory.setdefault((location.uri, path, slot), threading.Lock())
        return Claim(held) if held.acquire(blocking=False) else None
    if location.directory is None:
        return Claim()
    file = location.directory / LOCK_DIRECTORY / "slots" / path / f"{slot}.lock"
    file.parent.mkdir(parents=True, exist_ok=True)
    # A writer thread may release what the thread that reserved has acquired.
    lock = filelock.FileLock(file, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        return None
    return Claim(lock)


def is_fresh(location: Location, reserved_at: str, takeover_after: timedelta) -> bool:
    """Return whether a reservation must be presumed alive because of its age alone.

    Only object stores go by age; a store on a disk goes by the claim.

    Args:
        location: Where the store is.
        reserved_at: When the reservation was made or renewed, ISO 8601 in UTC.
        takeover_after: Age from which its writer counts as dead.
    """
    if location.directory is not None or location.memory_lock is not None or not reserved_at:
        return False
    # A time ahead of ours by more than that is of a clock that is wrong, and would block for ever.
    return abs(datetime.now(UTC) - datetime.fromisoformat(reserved_at)) < takeover_after
