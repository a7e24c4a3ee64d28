from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from flows.capture import Tokens, find_checkpoints
from flows.capture.errors import InputError, NonFiniteActivationError
from flows.capture.forward import capture, capture_whole
from flows.capture.guard import check_batching
from flows.capture.masks import draw_masks
from flows.capture.parts import Part
from flows.capture.weights import LoadedModel, load_model

Build = Callable[..., LoadedModel]

MASK_ID = 4
FAMILIES = ("albert", "bert", "distilbert", "electra", "modernbert", "roberta")


@pytest.fixture
def masked(ragged_tokens: Tokens) -> Tokens:
    """Return sequences whose first and last tokens are special, as CLS and SEP are."""
    ends = np.append(np.diff(ragged_tokens.sequence) > 0, True)
    special = (ragged_tokens.position == 0) | ends
    tokens = replace(ragged_tokens, special=special)
    return replace(tokens, masks=draw_masks(tokens, MASK_ID, 0))


def test_a_share_of_each_sequence_is_hidden(masked: Tokens) -> None:
    assert masked.masks is not None
    hidden = masked.masks.hidden
    assert not np.any(hidden & masked.special)
    counts = np.bincount(masked.sequence[hidden], minlength=11)
    # 15 % of the lengths 5, 40, 1, 17, 17, 3, 29, 8, 40, 2, 9 without two special tokens.
    assert counts.tolist() == [1, 6, 0, 2, 2, 1, 4, 1, 6, 0, 1]


def test_later_sequences_change_no_draw(masked: Tokens) -> None:
    first = masked.select(range(6))
    assert first.masks is not None
    again = draw_masks(replace(first, masks=None), MASK_ID, 0)
    np.testing.assert_array_equal(first.masks.hidden, again.hidden)
    other = draw_masks(replace(first, masks=None), MASK_ID, 1)
    assert not np.array_equal(first.masks.hidden, other.hidden)


@pytest.mark.parametrize("family", FAMILIES)
def test_losses_are_those_of_plain_transformers(
    tiny_model: Build, family: str, masked: Tokens
) -> None:
    loaded = tiny_model(family, head=True)
    sites = ["residual", "token_loss"]
    got = capture_whole(Part(loaded, masked, sites, 1), batch_tokens=90)
    assert masked.masks is not None
    np.testing.assert_array_equal(np.isnan(got["token_loss"]), ~masked.masks.hidden)
    # What else is captured is of the tokens as they are.
    plain = capture_whole(Part(tiny_model(family), masked, ["residual"], 1))
    np.testing.assert_allclose(got["residual"], plain["residual"], rtol=1e-4, atol=1e-5)
    for sequence in (0, 1, 6):
        rows = masked.sequence_rows(sequence)
        hidden = torch.from_numpy(masked.masks.hidden[rows])
        ids = torch.from_numpy(masked.token_id[rows].astype(np.int64))
        shown = torch.where(hidden, MASK_ID, ids)
        with torch.inference_mode():
            logits = loaded.model(shown[None]).logits[0]
            expected = cross_entropy(logits[hidden], ids[hidden], reduction="none")
        # Logarithms of sums of 96 float32 exponentials.
        np.testing.assert_allclose(got["token_loss"][rows][hidden], expected, rtol=1e-4)
    assert check_batching(loaded, masked, sites) < 1e-5


def test_masked_losses_that_are_no_numbers_are_refused(tiny_model: Build, masked: Tokens) -> None:
    loaded = tiny_model("bert", head=True)
    bias = loaded.model.cls.predictions.decoder.bias
    kept = bias.detach().clone()
    try:
        with torch.no_grad():
            bias.fill_(torch.nan)
        with pytest.raises(NonFiniteActivationError, match="token_loss has 24 rows"):
            list(capture(loaded, masked, ["token_loss"], block_rows=200))
        blocks = capture(loaded, masked, ["token_loss"], block_rows=200, allow_nonfinite=True)
        assert np.isinf(next(blocks).values["token_loss"]).sum() == 24
    finally:
        with torch.no_grad():
            bias.copy_(kept)


def test_masks_have_to_be_drawn(tiny_model: Build, ragged_tokens: Tokens) -> None:
    with pytest.raises(InputError, match="token_loss needs tokens of which some are masked"):
        capture(tiny_model("bert", head=True), ragged_tokens, ["token_loss"], block_rows=9)


@pytest.mark.parametrize("family", ["bert", "roberta", "albert", "gpt2"])
def test_a_head_leaves_the_drawn_weights_as_they_are(family: str) -> None:
    sizes = "hidden_size=16,num_hidden_layers=2,num_attention_heads=2,vocab_size=50"
    sizes += ",embedding_size=8" if family == "albert" else ""
    (checkpoint,) = find_checkpoints(f"random:{family}:{sizes}@3")
    plain, headed = (load_model(checkpoint, device="cpu", head=head) for head in (False, True))
    own = getattr(headed.model, headed.model.base_model_prefix).state_dict()
    for name, expected in plain.model.state_dict().items():
        if "pooler" not in name:
            assert torch.equal(own[name], expected), name
