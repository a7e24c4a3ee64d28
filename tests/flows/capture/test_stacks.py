from __future__ import annotations

import numpy as np
import pytest
import torch

from flows.capture import Tokens, find_checkpoints, from_ids
from flows.capture.forward import capture
from flows.capture.guard import check_batching, deviation
from flows.capture.sites import available_sites
from flows.capture.weights import LoadedModel, load_model

SOURCES = {
    # As ByT5: gated, and deeper in the encoder, over ids of bytes.
    "byt5": (
        "random:t5:vocab_size=384,d_model=32,d_kv=8,num_heads=4,d_ff=48,num_layers=2,"
        "num_decoder_layers=3,feed_forward_proj=gated-gelu,tie_word_embeddings=false"
    ),
    "t5": (
        "random:t5:vocab_size=96,d_model=32,d_kv=8,num_heads=4,d_ff=48,num_layers=2,"
        "num_decoder_layers=3"
    ),
    "bart": (
        "random:bart:vocab_size=96,d_model=32,encoder_layers=2,decoder_layers=3,"
        "encoder_attention_heads=4,decoder_attention_heads=4,encoder_ffn_dim=48,"
        "decoder_ffn_dim=48,max_position_embeddings=64,init_std=0.3"
    ),
}
START = {"t5": 0, "bart": 2}


@pytest.fixture(scope="module", params=sorted(SOURCES))
def source(request: pytest.FixtureRequest) -> str:
    return SOURCES[request.param]


@pytest.fixture(scope="module")
def loaded(source: str) -> LoadedModel:
    return load_model(find_checkpoints(source)[0], device="cpu", attention="eager")


def test_both_stacks_are_found(loaded: LoadedModel) -> None:
    encoder, decoder = (each.stack for each in loaded.each_stack())
    assert (encoder.name, encoder.n_blocks, encoder.causal) == ("encoder", 2, False)
    assert (decoder.name, decoder.n_blocks, decoder.causal) == ("decoder", 3, True)
    assert decoder.decoder_start == START[loaded.model_type]
    for stack in (encoder, decoder):
        assert (stack.final_norm is not None) == (loaded.model_type == "t5")


def test_rows_of_both_stacks_are_those_of_a_batch_of_one(
    loaded: LoadedModel, ragged_tokens: Tokens
) -> None:
    captured = {}
    for each in loaded.each_stack():
        (block,) = capture(each, ragged_tokens, ["residual"], block_rows=171, batch_tokens=100)
        captured[each.stack.name] = block.values["residual"]
    shown = ragged_tokens.shifted(START[loaded.model_type])
    for sequence in range(ragged_tokens.n_sequences):
        rows = ragged_tokens.sequence_rows(sequence)
        with torch.inference_mode():
            output = loaded.model(
                input_ids=torch.from_numpy(ragged_tokens.token_id[rows][None].astype(np.int64)),
                decoder_input_ids=torch.from_numpy(shown.token_id[rows][None].astype(np.int64)),
                output_hidden_states=True,
            )
        expected = {
            "encoder": output.encoder_hidden_states,
            "decoder": output.decoder_hidden_states,
        }
        for name, states in expected.items():
            # The last of transformers' is after the final norm, where there is one.
            for layer in range(len(states) - (loaded.model_type == "t5")):
                got = captured[name][layer, rows]
                assert deviation("residual", got[None], states[layer].numpy()) < 1e-5


def test_every_site_passes_the_guard(loaded: LoadedModel, ragged_tokens: Tokens) -> None:
    for each in loaded.each_stack():
        sites = available_sites(each.stack)
        assert {"residual", "query", "attention_entropy"} <= set(sites)
        assert check_batching(each, ragged_tokens, sites) < 1e-5


def test_both_stacks_pass_in_bfloat16(source: str, ragged_tokens: Tokens) -> None:
    loaded = load_model(find_checkpoints(source)[0], device="cpu", dtype=torch.bfloat16)
    assert loaded.source_dtype == "bfloat16"
    for each in loaded.each_stack():
        assert check_batching(each, ragged_tokens, ["residual"]) <= 2e-2


def test_what_a_decoder_is_shown() -> None:
    tokens = from_ids([np.array([7, 8, 9]), np.array([4]), np.array([5, 6])])
    shown = tokens.shifted(1)
    assert shown.token_id.tolist() == [1, 7, 8, 1, 1, 5]
    assert shown.special.tolist() == [True, False, False, True, True, False]
    assert shown.position.tolist() == tokens.position.tolist()
