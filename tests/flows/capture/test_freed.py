from __future__ import annotations

import gc
import resource
from pathlib import Path

import numpy as np
import pytest

from flows.capture.freed import passing

BIG = (8, 1024, 1024)
BYTES = 4 * 8 * 1024 * 1024


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.mark.parametrize("filled", [True, False])
def test_memory_goes_back_with_the_last_view(filled: bool) -> None:
    before = resident()
    values = passing(BIG, filled=filled)
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


def test_what_is_not_touched_takes_no_memory() -> None:
    before = resident()
    values = passing(BIG, filled=False)
    values[:, :1] = 1.0
    assert resident() - before < BYTES / 8


@pytest.mark.parametrize("shape", [(0, 3), (1,), (3, 700_001)])
def test_any_shape_can_be_had(shape: tuple[int, ...]) -> None:
    values = passing(shape)
    values[:] = 2.0
    assert values.shape == shape
    assert values.flags.writeable
