"""From the model to the store: one thread computes, one writes, a bounded queue between them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import numpy as np

from store.freed_memory import give_back_freed
from store.schema import TOKEN, site_variable
from store.write import StepWriter

if TYPE_CHECKING:
    from flows.capture.blocks import RowBlock

WAITING_BYTES: Final = 16 << 20
"""Size of the blocks that may wait for the writer; a larger one waits alone.

One more is being computed and one being written.
"""

PIECE_BYTES: Final = 16 << 20
"""Size of what is handed to the writer at once, where rows need not come in whole blocks."""

_MANY_BYTES: Final = 128 << 20
"""Size of blocks after which what writing them freed goes back to the system."""


class _Waiting:
    """Blocks on their way to the writer, then None."""

    def __init__(self) -> None:
        self._blocks: deque[RowBlock | None] = deque()
        self._n_bytes = 0
        self._changed = threading.Condition()

    @property
    def is_empty(self) -> bool:
        """Whether the writer has caught up with the model."""
        with self._changed:
            return not self._blocks

    def put(self, block: RowBlock | None) -> None:
        """Add a block, once there is room for it."""
        size = 0 if block is None else block.n_bytes
        with self._changed:
            self._changed.wait_for(
                lambda: not self._blocks or self._n_bytes + size <= WAITING_BYTES
            )
            self._blocks.append(block)
            self._n_bytes += size
            self._changed.notify_all()

    def get(self) -> RowBlock | None:
        """Take the next block, once there is one."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._blocks) > 0)
            block = self._blocks.popleft()
            self._n_bytes -= 0 if block is None else block.n_bytes
            self._changed.notify_all()
        return block


def stream(blocks: Iterable[RowBlock], *writers: StepWriter) -> None:
    """Write blocks of rows in a thread of their own while the next ones are computed.

    An error on either side ends both and is raised here. Nothing is visible in the store until
    the caller commits.

    Args:
        blocks: Blocks as the model gives them, computed in the calling thread.
        writers: Take them, one for each stack that is captured.
    """
    waiting = _Waiting()
    stopped = threading.Event()
    with ThreadPoolExecutor(1, "actlas-writer") as pool:
        written = pool.submit(_write, waiting, writers, stopped)
        try:
            for block in blocks:
                waiting.put(block)
                # It is to be gone once it is written, not once the next one is there.
                del block
                if stopped.is_set():
                    break
        finally:
            waiting.put(None)
    written.result()


def continued(
    blocks: Iterable[RowBlock], writer: StepWriter, sites: Sequence[str], depths: slice
) -> Iterator[RowBlock]:
    """Put rows after those that a step has, in blocks that begin where chunks do.

    Args:
        blocks: Rows of the new tokens alone, in order.
        writer: Writer of the step, whose last chunk may have room.
        sites: Sites that the blocks are of.
        depths: Their layers or blocks among those of the sites.
    """
    from flows.capture.blocks import RowBlock

    axes = {site: site_variable(site).dims[1:].index(TOKEN) for site in sites}
    waiting = {site: writer.held_rows(site)[depths] for site in sites}
    start = writer.held_tokens - writer.held_tokens % writer.chunk_rows
    depth = depths.start or 0
    for block in blocks:
        waiting = {
            site: np.concatenate([waiting[site], block.values[site]], axis)
            for site, axis in axes.items()
        }
        ready = min(waiting[site].shape[axis] for site, axis in axes.items())
        ready -= ready % writer.chunk_rows
        if ready:
            parts = {site: np.split(waiting[site], [ready], axis) for site, axis in axes.items()}
            whole = {site: first for site, (first, _) in parts.items()}
            yield RowBlock(start, start + ready, whole, depth=depth)
            waiting = {site: rest for site, (_, rest) in parts.items()}
            start += ready
    if start < writer.n_tokens:
        yield RowBlock(start, writer.n_tokens, waiting, depth=depth)


def _write(waiting: _Waiting, writers: Sequence[StepWriter], stopped: threading.Event) -> None:
    """Write what comes until None does; after a failure only empty the queue."""
    block, n_bytes = waiting.get(), 0
    try:
        while block is not None:
            n_bytes += block.n_bytes
            for site, values in block.values.items():
                writers[block.part].write_block(site, block.token_start, values, depth=block.depth)
            del block, values
            if waiting.is_empty:
                if n_bytes >= _MANY_BYTES:
                    # The next blocks, as many, take shape now, and need the room.
                    give_back_freed()
                n_bytes = 0
            block = waiting.get()
    finally:
        stopped.set()
        while block is not None:
            block = waiting.get()
