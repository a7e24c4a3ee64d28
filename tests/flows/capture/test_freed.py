from __future__ import annotations

import gc
import resource
from pathlib import Path

import numpy as np
import pytest

from flows.capture.freed import FreedMemory, passing

BIG = (8, 1024, 1024)
BYTES = 4 * 8 * 1024 * 1024


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_memory_goes_back_with_the_last_view() -> None:
    before = resident()
    values = passing(BIG)
    assert (values.shape, values.dtype) == (BIG, np.float32)
    values[:] = 1.0
    view = values[1:, 2:]
    del values
    gc.collect()
    # Half of it, since other threads and the allocator take and give back at the same time.
    assert resident() - before > BYTES / 2
    assert view.min() == view.max() == 1.0
    del view
    gc.collect()
    assert resident() - before < BYTES / 2


@pytest.mark.parametrize("shape", [(0, 3), (1,), (3, 700_001)])
def test_any_shape_can_be_had(shape: tuple[int, ...]) -> None:
    values = passing(shape)
    values[:] = 2.0
    assert values.shape == shape
    assert values.flags.writeable


def test_freed_memory_is_given_back_where_there_is_much_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[int] = []
    given: list[int] = []
    # MiB that are in memory after each batch of a window, and then after each of the next one.
    sizes = [500, 540, 579, 581, 530, 610]
    monkeypatch.setattr("flows.capture.freed.give_back_freed", lambda: given.append(len(told)))
    monkeypatch.setattr("flows.capture.freed.resident", lambda: sizes[len(told)] << 20)
    freed = FreedMemory()
    for _ in range(2):
        report = freed.giving_back(told.append, always=False)
        for _ in range(3):
            report(4)
    # 80 MiB more than the least there was, 500 MiB.
    assert given == [3, 5]
    assert told == [4] * 6


def test_freed_memory_is_given_back_after_each_batch_of_a_large_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[None] = []
    monkeypatch.setattr("flows.capture.freed.give_back_freed", lambda: given.append(None))
    report = FreedMemory().giving_back(None, always=True)
    for _ in range(3):
        report(4)
    assert len(given) == 3
