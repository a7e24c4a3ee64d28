"""From the model to the store: one thread computes, one writes, a bounded queue between them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from typing import TYPE_CHECKING, Final

import numpy as np

from store.schema import TOKEN, site_variable
from store.write import StepWriter

if TYPE_CHECKING:
    from flows.capture.rows import RowBlock

WAITING_BLOCKS: Final = 1
"""Blocks that may wait for the writer; one more is being computed and one being written."""


def stream(blocks: Iterable[RowBlock], *writers: StepWriter) -> None:
    """Write blocks of rows in a thread of their own while the next ones are computed.

    An error on either side ends both and is raised here. Nothing is visible in the store until
    the caller commits.

    Args:
        blocks: Blocks as the model gives them, computed in the calling thread.
        writers: Take them, one for each stack that is captured.
    """
    waiting: Queue[RowBlock | None] = Queue(WAITING_BLOCKS)
    stopped = threading.Event()
    with ThreadPoolExecutor(1, "actlas-writer") as pool:
        written = pool.submit(_write, waiting, writers, stopped)
        try:
            for block in blocks:
                waiting.put(block)
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
    from flows.capture.rows import RowBlock

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


def _write(
    waiting: Queue[RowBlock | None], writers: Sequence[StepWriter], stopped: threading.Event
) -> None:
    """Write what comes until None does; after a failure only empty the queue."""
    block = waiting.get()
    try:
        while block is not None:
            for site, values in block.values.items():
                writers[block.part].write_block(site, block.token_start, values, depth=block.depth)
            block = waiting.get()
    finally:
        stopped.set()
        while block is not None:
            block = waiting.get()
