"""Encoded chunks on their way to the store: handed over as they are, many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Final

import numpy as np
from zarr.buffer.cpu import Buffer

STORED_AT_ONCE: Final = 16
"""Chunks on their way at once: enough to hide the latency of an object store."""

STORED_ON_DISK_AT_ONCE: Final = 6
"""The same for a disk, which more would only fill memory with."""


class EncodedBytes(Buffer):
    """Bytes that are handed to the store as they are, where zarr's own buffer copies them."""

    def __init__(self, encoded: memoryview) -> None:
        super().__init__(np.frombuffer(encoded, np.uint8))
        self._encoded = encoded

    # Icechunk reads any buffer where it lies; Zarr knows none but bytes.
    def to_bytes(self) -> memoryview:  # type: ignore[override]
        """Return the bytes where they are."""
        return self._encoded


async def run_all(operations: Iterable[Coroutine[None, None, None]]) -> None:
    """Run operations side by side; the first failure stops the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for operation in operations:
                tasks.create_task(operation)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
