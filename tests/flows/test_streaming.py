from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from flows.capture.blocks import RowBlock
from flows.streaming import stream


def block(start: int) -> RowBlock:
    return RowBlock(start, start + 2, {"residual": np.full((1, 2, 3), start, dtype=np.float32)})


WAITING = 2
"""Blocks that may wait for the writer in these tests."""


@pytest.fixture(autouse=True)
def _little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.streaming.WAITING_BYTES", WAITING * block(0).n_bytes)


@dataclass
class Recorder:
    """A writer that notes what it gets, and fails at one block."""

    fails_at: int | None = None
    starts: list[int] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)

    def write_block(
        self, site: str, token_start: int, values: np.ndarray, *, depth: int = 0
    ) -> None:
        if token_start == self.fails_at:
            raise OSError("no room")
        self.starts.append(token_start)
        self.threads.add(threading.current_thread().name)


def test_blocks_are_written_in_order_by_one_other_thread() -> None:
    writer = Recorder()
    stream((block(start) for start in range(20)), writer)
    assert writer.starts == list(range(20))
    assert len(writer.threads) == 1
    assert threading.current_thread().name not in writer.threads


def test_an_error_of_the_model_is_raised_after_what_came_before_was_written() -> None:
    def blocks() -> Iterator[RowBlock]:
        yield block(0)
        raise ValueError("the model broke")

    writer = Recorder()
    with pytest.raises(ValueError, match="the model broke"):
        stream(blocks(), writer)
    assert writer.starts == [0]


def test_an_error_of_the_writer_stops_the_model_soon() -> None:
    made = []

    def blocks() -> Iterator[RowBlock]:
        for start in range(1000):
            made.append(start)
            yield block(start)

    with pytest.raises(OSError, match="no room"):
        stream(blocks(), Recorder(fails_at=2))
    # The failing block, those that waited behind it, and the ones made until it was noticed.
    assert len(made) < 1000


def test_memory_is_bounded_by_the_queue() -> None:
    released = threading.Event()
    made = []

    class Slow(Recorder):
        def write_block(
            self, site: str, token_start: int, values: np.ndarray, *, depth: int = 0
        ) -> None:
            if token_start == 0:
                released.wait(10)
            super().write_block(site, token_start, values)

    def blocks() -> Iterator[RowBlock]:
        for start in range(10):
            made.append(start)
            if start == WAITING + 1:
                # Block 0 is being written, the next ones wait, this one is being made.
                threading.Timer(0.05, released.set).start()
            yield block(start)
            if not released.is_set():
                assert len(made) <= WAITING + 2

    writer = Slow()
    stream(blocks(), writer)
    assert writer.starts == list(range(10))


def test_a_block_larger_than_what_may_wait_waits_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.streaming.WAITING_BYTES", 1)
    writer = Recorder()
    stream((block(start) for start in range(5)), writer)
    assert writer.starts == list(range(5))


def test_no_thread_is_left_behind() -> None:
    before = threading.active_count()
    with pytest.raises(OSError, match="no room"):
        stream((block(start) for start in range(5)), Recorder(fails_at=0))
    assert threading.active_count() == before


def test_the_next_block_is_computed_while_one_is_written() -> None:
    computed = threading.Event()
    overlapped = []

    class Waiting(Recorder):
        def write_block(
            self, site: str, token_start: int, values: np.ndarray, *, depth: int = 0
        ) -> None:
            if token_start == 0:
                # Without overlap, nobody would compute the second block before this returns.
                overlapped.append(computed.wait(timeout=60))
            super().write_block(site, token_start, values)

    def model() -> Iterator[RowBlock]:
        yield block(0)
        computed.set()
        yield block(1)

    stream(model(), Waiting())
    assert overlapped == [True]
