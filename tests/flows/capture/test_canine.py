from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from flows.capture import Tokens, find_checkpoints, tokenize
from flows.capture.chosen import MEAN, RowChoice, choose_rows
from flows.capture.forward import capture
from flows.capture.guard import check_batching, deviation
from flows.capture.weights import LoadedModel, load_model

CONFIG = (
    "random:canine:hidden_size=32,num_hidden_layers=2,num_attention_heads=4,intermediate_size=48,"
    "num_hash_functions=2,num_hash_buckets=64,max_position_embeddings=256,local_transformer_stride=8,"
    "initializer_range=0.3"
)
TEXTS = ["a cat sat on a mat", "", "two cats sat here.", "x", "the rat ran off, and the cat ran"]


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load_model(find_checkpoints(CONFIG)[0], device="cpu")


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    from transformers import CanineTokenizer

    texts = [text for text in TEXTS if text]
    found = tokenize(texts, CanineTokenizer(), chunking={"unit": "chars"}, special_tokens=True)
    return replace(found, rate=4)


def test_rows_span_characters(tokens: Tokens) -> None:
    # CLS and 18 characters and SEP are 20 tokens: 5 rows; "x" with its two has none.
    assert np.diff(tokens.place_offsets).tolist() == [5, 5, 0, 8]
    columns = tokens.coordinates()
    assert columns["position"][:5].tolist() == [0, 1, 2, 3, 4]
    assert columns["special"][:5].tolist() == [True, False, False, False, False]
    # The first row is CLS alone, the next one CLS and three characters, then four each.
    assert columns["char_start"][:5].tolist() == [-1, 0, 3, 7, 11]
    assert columns["char_end"][:5].tolist() == [-1, 3, 7, 11, 15]


def test_rows_are_the_models_own(loaded: LoadedModel, tokens: Tokens) -> None:
    assert (loaded.stack.n_blocks, loaded.stack.rate) == (2, 4)
    (block,) = capture(loaded, tokens, ["residual"], block_rows=99)
    for sequence in (0, 1, 3):
        ids = torch.from_numpy(tokens.token_id[tokens.sequence_tokens(sequence)][None].astype(int))
        with torch.inference_mode():
            states = loaded.model(ids, output_hidden_states=True).hidden_states
        deep = [state for state in states if state.shape[1] == ids.shape[1] // 4]
        got = block.values["residual"][:, tokens.sequence_rows(sequence)]
        assert len(deep) == len(got) == 3
        for layer, expected in enumerate(deep):
            assert deviation("residual", got[layer][None], expected.numpy()) < 1e-5
    assert check_batching(loaded, tokens, ["residual"]) < 1e-5


def test_rows_pass_in_bfloat16(tokens: Tokens) -> None:
    narrow = load_model(find_checkpoints(CONFIG)[0], device="cpu", dtype=torch.bfloat16)
    assert narrow.source_dtype == "bfloat16"
    assert check_batching(narrow, tokens, ["residual"]) <= 2e-2


def test_means_are_over_the_rows(loaded: LoadedModel, tokens: Tokens) -> None:
    (whole,) = capture(loaded, tokens, ["residual"], block_rows=99)
    pooled = choose_rows(tokens, tokens, RowChoice(MEAN))
    (block,) = capture(loaded, pooled, ["residual"], block_rows=99)
    expected = whole.values["residual"][:, :5].mean(axis=1)
    np.testing.assert_allclose(block.values["residual"][:, 0], expected, rtol=1e-4, atol=1e-5)
    assert pooled.coordinates()["char_end"].tolist() == [15, 15, 27]
