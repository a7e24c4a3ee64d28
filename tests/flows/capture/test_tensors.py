"""Weights are read, not mapped: what happens to their files later changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from flows.capture import Tokens, find_checkpoints
from flows.capture.errors import CheckpointError
from flows.capture.forward import capture
from flows.capture.tensors import read_tensors
from flows.capture.weights import LoadedModel, load_model

Build = Callable[..., LoadedModel]


def test_tensors_are_those_that_were_saved(tmp_path: Path) -> None:
    numbers = torch.arange(1 << 20)
    saved = {
        "large": numbers.float(),  # memory of its own
        "odd": numbers[:7].to(torch.bfloat16),
        "whole": numbers[:3].to(torch.int8),
        "yes": numbers[:5] > 2,
        "none": torch.empty(0, 3),
        "one": torch.tensor(2.5, dtype=torch.float64),
    }
    save_file(saved, tmp_path / "model.safetensors")
    torch.save({"more": numbers[:4].half()}, tmp_path / "pytorch_model.bin")
    found = read_tensors([tmp_path / "model.safetensors", tmp_path / "pytorch_model.bin"])
    assert found.keys() == saved.keys() | {"more"}
    for name, tensor in saved.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=0)
    torch.testing.assert_close(found["more"], numbers[:4].half(), rtol=0, atol=0)


def test_a_file_that_became_shorter_is_told(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_file({"x": torch.zeros(1000)}, file)
    whole = file.read_bytes()
    for length in (len(whole) - 1, 100, 20, 3):
        file.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match="was cut short or written to while it was read"):
            read_tensors([file])
    file.write_bytes(whole.replace(b'"F32"', b'"F4" '))
    with pytest.raises(CheckpointError, match="holds values of F4, expected one of BOOL, U8"):
        read_tensors([file])


@pytest.mark.parametrize("head", [False, True])
@pytest.mark.parametrize("pickled", [False, True])
def test_a_file_that_is_written_to_while_its_model_runs_changes_nothing(
    saved_model: Path, ragged_tokens: Tokens, tiny_model: Build, head: bool, pickled: bool
) -> None:
    file = saved_model / "model.safetensors"
    if pickled:
        file.unlink()
        file = saved_model / "pytorch_model.bin"
        torch.save(tiny_model("gpt_neox", head=True).model.state_dict(), file)
    (checkpoint,) = find_checkpoints(str(saved_model))
    loaded = load_model(checkpoint, device="cpu", head=head)

    def rows() -> np.ndarray:
        (block,) = capture(loaded, ragged_tokens, ["residual"], block_rows=171)
        return block.values["residual"]

    before = rows()
    with file.open("r+b") as stream:
        stream.write(bytes(file.stat().st_size // 2))
        # Pages of a mapping beyond this end could not be read any more: a signal would end us.
        stream.truncate(stream.tell())
    np.testing.assert_array_equal(rows(), before)
