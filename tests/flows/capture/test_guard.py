from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from flows.capture import Tokens
from flows.capture.errors import ReplayError
from flows.capture.forward import capture
from flows.capture.guard import check_batching, deviation, replay
from flows.capture.sites import available_sites
from flows.capture.weights import LoadedModel

Build = Callable[..., LoadedModel]


def test_sequences_run_alone_give_the_rows_of_the_corpus(
    tiny_model: Build, ragged_tokens: Tokens
) -> None:
    loaded = tiny_model("llama")
    (block,) = capture(loaded, ragged_tokens, ["residual", "final_norm"], block_rows=171)
    alone = replay(loaded, ragged_tokens, [1, 2], ["residual", "final_norm"])
    assert alone[2]["residual"].shape == (4, 1, 32)
    rows = ragged_tokens.sequence_rows(1)
    assert deviation("residual", block.values["residual"][:, rows], alone[1]["residual"]) < 1e-5
    assert deviation("final_norm", block.values["final_norm"][rows], alone[1]["final_norm"]) < 1e-5


def test_deviation_is_relative_to_the_norm_of_the_row() -> None:
    expected = np.array([[[3.0, 4.0], [0.0, 10.0]]], dtype=np.float32)
    got = np.array([[[3.0, 4.5], [0.0, 10.0]]], dtype=np.float32)
    # The first row, of norm 5, is off by 0.5.
    assert deviation("residual", got, expected) == pytest.approx(0.1)
    nan = np.array([[np.nan, np.inf, 1.0]], dtype=np.float32)
    assert deviation("final_norm", nan, nan) == 0
    assert np.isnan(deviation("final_norm", nan, np.ones_like(nan)))
    assert deviation("token_loss", np.float32([np.nan, 2.5]), np.float32([np.nan, 2.0])) == 0.25


def test_every_family_passes(tiny_model: Build, family: str, ragged_tokens: Tokens) -> None:
    for attention in (None, "eager"):
        decoder = tiny_model(family).causal
        loaded = tiny_model(family, attention=attention, head=decoder and attention == "eager")
        assert check_batching(loaded, ragged_tokens, available_sites(loaded.stack)) < 1e-5


def test_every_family_passes_in_bfloat16(
    tiny_model: Build, family: str, ragged_tokens: Tokens
) -> None:
    loaded = tiny_model(family, dtype=torch.bfloat16)
    assert loaded.source_dtype == "bfloat16"
    assert check_batching(loaded, ragged_tokens, ["residual"]) <= 2e-2


def test_a_model_that_sees_padding_is_refused(tiny_model: Build, ragged_tokens: Tokens) -> None:
    loaded = tiny_model("bert")

    def blind(module: object, args: object, kwargs: dict[str, Tensor]) -> tuple[object, object]:
        return args, {**kwargs, "attention_mask": torch.ones_like(kwargs["attention_mask"])}

    handle = loaded.model.register_forward_pre_hook(blind, with_kwargs=True)
    try:
        with pytest.raises(ReplayError, match=r"residual of sequence \d+ differs by .* mask"):
            check_batching(loaded, ragged_tokens, ["residual"])
    finally:
        handle.remove()
