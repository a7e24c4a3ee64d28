from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import flows.capture.parts
from flows.capture import Tokens
from flows.capture.forward import capture
from flows.capture.guard import check_batching
from flows.capture.parts import Part
from flows.capture.weights import LoadedModel

Build = Callable[..., LoadedModel]

SITE = "attention_probability"


@pytest.mark.parametrize("family", ["albert", "bert", "llama"])
@pytest.mark.parametrize("blocks_a_pass", [1, 2, 3])
def test_probabilities_are_those_that_transformers_outputs(
    tiny_model: Build,
    family: str,
    blocks_a_pass: int,
    ragged_tokens: Tokens,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = tiny_model(family, attention="eager")
    # 40 rows of the longest sequence, of 4 heads and 40 keys.
    monkeypatch.setattr(flows.capture.parts, "_PASS_BYTES", blocks_a_pass * 40 * 4 * 40 * 4)
    blocks = list(
        capture(loaded, ragged_tokens, ["residual", SITE], block_rows=64, batch_tokens=90)
    )
    kept = [block for block in blocks if SITE in block.values]
    assert {block.values[SITE].shape[0] for block in kept} <= {1, blocks_a_pass}
    got = np.zeros((3, 4, 171, 40), np.float32)
    for block in kept:
        values = block.values[SITE]
        depths = slice(block.depth, block.depth + len(values))
        got[depths, :, block.token_start : block.token_stop] = values
    for sequence in range(ragged_tokens.n_sequences):
        rows = ragged_tokens.sequence_rows(sequence)
        ids = torch.from_numpy(ragged_tokens.token_id[rows][None].astype(np.int64))
        with torch.inference_mode():
            attentions = loaded.model(ids, output_attentions=True).attentions
        length = rows.stop - rows.start
        for block, expected in enumerate(attentions):
            # Probabilities, at most 1; logits of order 10 in float32.
            np.testing.assert_allclose(got[block, :, rows, :length], expected[0], atol=1e-5)
        assert not got[:, :, rows, length:].any()


def test_a_pass_ends_with_its_last_block(
    tiny_model: Build, ragged_tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = tiny_model("llama", attention="eager")
    monkeypatch.setattr(flows.capture.parts, "_PASS_BYTES", 1)
    part = Part(loaded, ragged_tokens, ["residual", SITE], 64, layers=(1, 3))
    found = [(list(one.sites), one.layers, one.first) for one in part.passes()]
    assert found == [(["residual"], (1, 3), 0), ([SITE], (1,), 0), ([SITE], (3,), 1)]
    called: list[int] = []
    handles = [
        block.register_forward_hook(lambda *_, number=number: called.append(number))
        for number, block in enumerate(loaded.model.layers)
    ]
    list(capture(loaded, ragged_tokens, [SITE], block_rows=64, layers=(1,)))
    for handle in handles:
        handle.remove()
    # It ends within the attention of the first block.
    assert called == []


def test_probabilities_pass_the_guard(tiny_model: Build, ragged_tokens: Tokens) -> None:
    loaded = tiny_model("gpt2", attention="eager")
    assert check_batching(loaded, ragged_tokens, [SITE, "attention_max"]) < 1e-5
