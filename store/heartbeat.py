"""Telling other writers that this one lives, where they can only go by the age of its words."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import icechunk

from .errors import ReservationLostError, StoreError
from .location import Location

BEATS_PER_TAKEOVER: Final = 4
LEAST_PAUSE: Final = 1.0
"""Seconds between two looks of the thread at the clock, at least."""


class Heartbeat:
    """Renews a reservation in an object store, from a thread of its own.

    A forward pass may take longer than others wait, and nothing is written meanwhile. In stores on
    a disk or in memory a claim says who is alive, and nothing is done.

    Args:
        location: Where the store is.
        renew: Renews the reservation once.
        takeover_after: Age from which others take the reservation over.
    """

    def __init__(
        self, location: Location, renew: Callable[[], None], takeover_after: timedelta
    ) -> None:
        self._needed = location.directory is None and location.memory_lock is None
        self._renew = renew
        self._every = takeover_after.total_seconds() / BEATS_PER_TAKEOVER
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._renewed = time.monotonic()
        self._lost: ReservationLostError | None = None

    def start(self) -> None:
        """Begin to renew; from now on :meth:`stop` is needed."""
        if self._needed:
            threading.Thread(target=self._run, name="actlas-heartbeat", daemon=True).start()

    def stop(self) -> None:
        """Renew no more; a renewal under way is waited for."""
        self._stopped.set()
        with self._lock:
            pass

    def beat_if_due(self) -> None:
        """Renew the reservation if the last time was long ago.

        Raises:
            ReservationLostError: If another writer has taken the step over.
        """
        if not self._needed:
            return
        with self._lock:
            if self._lost is not None:
                raise self._lost
            if self._stopped.is_set() or time.monotonic() - self._renewed < self._every:
                return
            self._renew()
            self._renewed = time.monotonic()

    def _run(self) -> None:
        while not self._stopped.wait(max(self._every / BEATS_PER_TAKEOVER, LEAST_PAUSE)):
            try:
                # What the network loses once, the next round brings.
                with contextlib.suppress(icechunk.IcechunkError, OSError):
                    self.beat_if_due()
            except ReservationLostError as error:
                self._lost = error
                return
            except StoreError:
                continue
