"""A single untrained block: what it is fed, how it is set up, and the known answers of BERT's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from flows.capture import Tokens, find_checkpoints, fingerprint, from_ids
from flows.capture.errors import StructureError
from flows.capture.forward import capture
from flows.capture.untrained_block import COMMON_BIAS
from flows.capture.weights import LoadedModel, load_model

SIZES = "vocab_size=96,hidden_size=32,num_attention_heads=4,intermediate_size=48"


def load(source: str) -> LoadedModel:
    (checkpoint,) = find_checkpoints(source)
    return load_model(checkpoint, device="cpu", attention="eager")


def ids(sequences: int, length: int, vocabulary: int) -> Tokens:
    drawn = np.random.default_rng(0).integers(1, vocabulary, (sequences, length))
    return from_ids(list(drawn), max_length=512)


def states(loaded: LoadedModel, tokens: Tokens, *sites: str) -> dict[str, np.ndarray]:
    blocks = list(capture(loaded, tokens, sites or ("residual",), block_rows=len(tokens)))
    return dict(blocks[0].values)


def average_cosine(rows: np.ndarray) -> float:
    directions = rows / np.linalg.norm(rows.astype(float), axis=1, keepdims=True)
    total, n = directions.sum(axis=0), len(rows)
    return float((total @ total - n) / (n * (n - 1)))


@pytest.mark.parametrize("family", ["bert", "gpt_neox", "llama"])
def test_a_block_is_fed_embeddings_and_the_common_vector(family: str) -> None:
    loaded = load(f"block:{family}:{SIZES},common_bias=3@1")
    tokens = ids(3, 5, 96)
    residual = states(loaded, tokens)["residual"]
    assert len(residual) == 2  # what the block is given, and what it gives
    embedded = loaded.model.get_input_embeddings().weight.detach().numpy()[tokens.token_id]
    common = loaded.model.get_buffer(COMMON_BIAS).numpy()
    assert np.linalg.norm(common) == pytest.approx(3, rel=1e-6)
    np.testing.assert_allclose(residual[0], embedded + common, rtol=0, atol=1e-6)


def test_queries_and_keys_are_scaled_and_nothing_else() -> None:
    tokens = ids(3, 5, 96)
    sites = ("query", "key", "value", "attention_logit_deviation")
    plain, scaled = (
        states(load(f"block:bert:{SIZES},query_key_scale={scale}"), tokens, *sites)
        for scale in (1, 3)
    )
    # Biases are zero, so that queries and keys are as much longer as their weights are larger.
    np.testing.assert_allclose(scaled["query"], 3 * plain["query"], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(scaled["key"], 3 * plain["key"], rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(scaled["value"], plain["value"])
    # Logits are products of both; float32 probabilities near 1/5 know theirs to about 1e-7.
    ratio = scaled["attention_logit_deviation"] / plain["attention_logit_deviation"]
    assert np.median(ratio) == pytest.approx(9, rel=0.01)


def test_biases_are_drawn_when_asked_for() -> None:
    for deviation in (0.0, 0.5):
        block = load(f"block:bert:{SIZES},bias_std={deviation}").stack.blocks[0]
        biases = torch.cat(
            [m.bias.detach() for m in block.modules() if isinstance(m, torch.nn.Linear)]
        )
        # 4 × 32 + 48 + 32 = 208 draws: their deviation is off by 1/√416 = 5 %.
        assert float(biases.std()) == pytest.approx(deviation, rel=0.2)


def test_every_setting_gives_other_digests_and_the_seed_is_the_step() -> None:
    found = [
        find_checkpoints(f"block:bert:{SIZES}{extra}")[0]
        for extra in ("", ",common_bias=1", ",query_key_scale=2", ",bias_std=1", "@7", "@7")
    ]
    digests = [fingerprint(checkpoint).weights_sha256 for checkpoint in found]
    assert len(set(digests)) == 5
    assert digests[4] == digests[5]
    assert [checkpoint.step for checkpoint in found] == [0, 0, 0, 0, 7, 7]
    assert found[1].model == "block-bert-common_bias=1"


def test_embeddings_of_another_width_are_refused() -> None:
    sizes = "vocab_size=96,hidden_size=32,embedding_size=16,num_attention_heads=4"
    with pytest.raises(StructureError, match="embeddings of 16 entries and blocks of 32"):
        load(f"block:albert:{sizes}")


def test_queries_behind_a_norm_cannot_be_scaled() -> None:
    with pytest.raises(StructureError, match="expected a linear map"):
        load(f"block:qwen3:{SIZES},head_dim=8,num_key_value_heads=2,query_key_scale=2")


def test_the_block_of_bert_has_its_known_answers() -> None:
    """METRICS, section 7: d = 768, 12 heads, biases 0, std 0.02, rows of an untrained embedding."""
    expected = {0.0: (0.0, 0.0136), 0.5: (0.449, 0.480), 1.0: (0.765, 0.785), 4.0: (0.981, 0.983)}
    tokens = ids(16, 64, 2048)
    loaded = load("block:bert:vocab_size=2048,common_bias=1@0")
    direction = loaded.model.get_buffer(COMMON_BIAS).clone()
    for norm, answers in expected.items():
        loaded.model.get_buffer(COMMON_BIAS).copy_(norm * direction)
        given, got = states(loaded, tokens)["residual"]
        # Other directions of the common vector move the outputs by about 0.008; this is the one
        # that the answers were read from, so that only the rows differ.
        np.testing.assert_allclose(
            (average_cosine(given), average_cosine(got)), answers, rtol=0, atol=0.003
        )
        norms = np.linalg.norm(got.astype(float), axis=1)
        np.testing.assert_allclose(norms, math.sqrt(768), rtol=0, atol=1e-4)
