from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from flows.capture import Tokens
from flows.capture.errors import MemoryShortageError
from flows.capture.forward import capture
from flows.capture.weights import LoadedModel

Build = Callable[..., LoadedModel]

SHORTAGES = [
    torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    MemoryError(),
    RuntimeError("[enforce fail at alloc_cpu.cpp:119] DefaultCPUAllocator: can't allocate memory"),
]


def failing_above(loaded: LoadedModel, size: int, error: Exception, sizes: list[int]) -> object:
    """Make the second block of a model fail for batches of more than `size` tokens."""

    def fail(_block: object, args: tuple[Tensor, ...]) -> None:
        sizes.append(args[0].shape[:2].numel())
        if sizes[-1] > size:
            raise error

    return loaded.model.h[1].register_forward_pre_hook(fail)


@pytest.mark.parametrize("error", SHORTAGES, ids=["cuda", "memory", "runtime"])
def test_batches_are_halved_until_they_fit(
    tiny_model: Build, ragged_tokens: Tokens, error: Exception
) -> None:
    loaded = tiny_model("gpt2")
    (expected,) = capture(loaded, ragged_tokens, ["residual"], block_rows=171)
    sizes: list[int] = []
    done: list[int] = []
    handle = failing_above(loaded, 50, error, sizes)
    try:
        (got,) = capture(
            loaded,
            ragged_tokens,
            ["residual"],
            block_rows=171,
            batch_tokens=200,
            progress=done.append,
        )
    finally:
        handle.remove()
    difference = np.abs(got.values["residual"] - expected.values["residual"]).max()
    assert difference < 1e-5 * np.abs(expected.values["residual"]).max()
    assert sum(done) == 171
    # 200, then halves; once one has fit, none is too large again.
    assert sizes[0] > 100 > sizes[1]
    assert max(sizes[next(i for i, size in enumerate(sizes) if size <= 50) :]) <= 50


def test_a_sequence_that_does_not_fit_is_told(tiny_model: Build, ragged_tokens: Tokens) -> None:
    loaded = tiny_model("gpt2")
    handle = failing_above(loaded, 30, MemoryError(), [])
    try:
        with pytest.raises(MemoryShortageError, match="no memory to run one sequence of 40 tokens"):
            list(capture(loaded, ragged_tokens, ["residual"], block_rows=171))
    finally:
        handle.remove()


def test_other_errors_are_not_taken_for_a_shortage(
    tiny_model: Build, ragged_tokens: Tokens
) -> None:
    loaded = tiny_model("gpt2")
    sizes: list[int] = []
    handle = failing_above(loaded, 30, RuntimeError("shapes do not match"), sizes)
    try:
        with pytest.raises(RuntimeError, match="shapes do not match"):
            list(capture(loaded, ragged_tokens, ["residual"], block_rows=171))
    finally:
        handle.remove()
    assert len(sizes) == 1
