from __future__ import annotations

import gc
import resource
from pathlib import Path

import numpy as np
import pytest

from flows.capture.freed import giving_back, passing

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


def test_freed_memory_is_given_back_now_and_then_during_a_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[int] = []
    given: list[int] = []
    monkeypatch.setattr("flows.capture.freed.give_back_freed", lambda: given.append(sum(told)))
    report = giving_back(told.append, 40)
    for _ in range(10):
        report(4)
    # After the first batch, then whenever a quarter of the window more is done.
    assert given == [0, 12, 24, 36]
    assert told == [4] * 10
