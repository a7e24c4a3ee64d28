from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from flows.capture import Tokens, from_ids
from flows.capture.blocks import RowBlock
from flows.capture.errors import InputError, NonFiniteActivationError, UnknownSiteError
from flows.capture.forward import capture, capture_whole
from flows.capture.parts import Part
from flows.capture.sites import available_sites
from flows.capture.weights import LoadedModel

Build = Callable[..., LoadedModel]

# The same row from another batch shape: other summation orders in a few float32 products.
SAME_ROW = 1e-5


def joined(blocks: Iterator[RowBlock], site: str, axis: int) -> NDArray[np.float32]:
    return np.concatenate([block.values[site] for block in blocks], axis=axis)


def relative_error(got: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    """Largest norm of a row's difference, relative to the row's norm."""
    difference = np.linalg.norm(got.astype(float) - expected, axis=-1)
    return float((difference / np.linalg.norm(expected.astype(float), axis=-1)).max())


def states_alone(loaded: LoadedModel, ids: NDArray[np.int32]) -> list[NDArray[np.float32]]:
    """Return what plain transformers calls the hidden states of a sequence run alone."""
    with torch.inference_mode():
        token_ids = torch.from_numpy(ids[None].astype(np.int64))
        output = loaded.model(token_ids, output_hidden_states=True)
        states = list(output.hidden_states)
        if loaded.model_type == "mamba":
            # There, transformers leaves the embeddings out and gives the last block twice.
            states = [loaded.model.embeddings(token_ids), *states[:2], states[-1]]
    return [state[0].numpy() for state in states]


def count_hooks(loaded: LoadedModel) -> int:
    modules = loaded.model.modules()
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in modules)


def test_rows_are_the_hidden_states_of_a_batch_of_one(
    tiny_model: Build, family: str, ragged_tokens: Tokens
) -> None:
    loaded = tiny_model(family)
    sites = available_sites(loaded.stack)
    got = capture_whole(Part(loaded, ragged_tokens, sites, 1), batch_tokens=100)
    residual = got["residual"]
    assert residual.shape == (4, len(ragged_tokens), 32)
    for sequence in range(ragged_tokens.n_sequences):
        rows = ragged_tokens.sequence_rows(sequence)
        *inner, last = states_alone(loaded, ragged_tokens.token_id[rows])
        for layer, expected in enumerate(inner):
            assert relative_error(residual[layer, rows], expected) < SAME_ROW
        # transformers gives the output of the final norm, where there is one, for the last block.
        if "final_norm" in sites:
            assert relative_error(got["final_norm"][rows], last) < SAME_ROW
            assert loaded.stack.final_norm is not None
            raw = torch.from_numpy(residual[-1, rows])
            assert relative_error(loaded.stack.final_norm(raw).detach().numpy(), last) < SAME_ROW
        else:
            assert relative_error(residual[-1, rows], last) < SAME_ROW


@settings(deadline=None, max_examples=25)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    block_rows=st.integers(1, 64),
    batch_tokens=st.integers(1, 200),
)
def test_rows_depend_neither_on_batches_nor_on_blocks(
    tiny_model: Build, lengths: list[int], block_rows: int, batch_tokens: int
) -> None:
    loaded = tiny_model("gpt_neox")
    rng = np.random.default_rng(1)
    tokens = from_ids([rng.integers(3, 96, size=length) for length in lengths])
    whole = joined(capture(loaded, tokens, ["residual"], block_rows=10**6), "residual", 1)
    blocks = list(
        capture(loaded, tokens, ["residual"], block_rows=block_rows, batch_tokens=batch_tokens)
    )
    starts = [block.token_start for block in blocks]
    assert starts == list(range(0, len(tokens), block_rows))
    assert [block.token_stop for block in blocks] == [*starts[1:], len(tokens)]
    assert relative_error(joined(iter(blocks), "residual", 1), whole) < SAME_ROW


def test_the_order_of_sequences_does_not_matter(tiny_model: Build, ragged_tokens: Tokens) -> None:
    loaded = tiny_model("bert")
    ids = [ragged_tokens.token_id[ragged_tokens.sequence_rows(i)] for i in range(11)]
    backwards = from_ids(ids[::-1])
    one = joined(capture(loaded, ragged_tokens, ["residual"], block_rows=50), "residual", 1)
    two = joined(capture(loaded, backwards, ["residual"], block_rows=50), "residual", 1)
    for i in range(11):
        there = two[:, backwards.sequence_rows(10 - i)]
        assert relative_error(there, one[:, ragged_tokens.sequence_rows(i)]) < SAME_ROW


def test_bfloat16_is_widened_without_loss(tiny_model: Build, ragged_tokens: Tokens) -> None:
    loaded = tiny_model("llama")
    loaded.model.to(torch.bfloat16)
    values = joined(capture(loaded, ragged_tokens, ["residual"], block_rows=99), "residual", 1)
    loaded.model.to(torch.float32)
    assert values.dtype == np.float32
    # The low 16 bits of a widened bfloat16 are zero.
    assert not np.any(values.view(np.uint32) & 0xFFFF)


def test_nonfinite_values_are_refused_with_their_place(
    tiny_model: Build, ragged_tokens: Tokens
) -> None:
    loaded = tiny_model("gpt2")
    bias = loaded.model.h[1].mlp.c_proj.bias
    kept = bias.detach().clone()
    try:
        with torch.no_grad():
            bias[3] = float("inf")
        with pytest.raises(NonFiniteActivationError, match="residual at index 2 has 171 rows"):
            list(capture(loaded, ragged_tokens, ["residual"], block_rows=64))
        blocks = capture(loaded, ragged_tokens, ["residual"], block_rows=64, allow_nonfinite=True)
        assert not np.isfinite(joined(blocks, "residual", 1)[2]).all()
    finally:
        with torch.no_grad():
            bias.copy_(kept)


def test_values_whose_sum_overflows_are_finite(tiny_model: Build, ragged_tokens: Tokens) -> None:
    loaded = tiny_model("gpt2")
    bias = loaded.model.ln_f.bias
    kept = bias.detach().clone()
    try:
        with torch.no_grad():
            bias.fill_(1e38)
        blocks = capture(loaded, ragged_tokens, ["final_norm"], block_rows=64)
        assert np.isfinite(joined(blocks, "final_norm", 0)).all()
    finally:
        with torch.no_grad():
            bias.copy_(kept)


def test_the_model_is_left_as_found_even_by_a_failure(
    tiny_model: Build, ragged_tokens: Tokens
) -> None:
    loaded = tiny_model("gpt2")
    loaded.model.train()
    hooks = count_hooks(loaded)

    def fail(n_tokens: int) -> None:
        raise RuntimeError(f"after {n_tokens}")

    try:
        with pytest.raises(RuntimeError, match="after"):
            list(capture(loaded, ragged_tokens, ["residual"], block_rows=9, progress=fail))
        assert all(module.training for module in loaded.model.modules())
        assert count_hooks(loaded) == hooks
        blocks = capture(loaded, ragged_tokens, ["residual"], block_rows=9)
        next(blocks)
        assert not torch.is_inference_mode_enabled()
        assert all(module.training for module in loaded.model.modules())
    finally:
        loaded.model.eval()


def test_a_forward_pass_ends_after_the_last_layer_that_is_wanted(
    tiny_model: Build, ragged_tokens: Tokens
) -> None:
    loaded = tiny_model("llama")
    (whole,) = capture(loaded, ragged_tokens, ["residual", "mlp_output"], block_rows=171)
    called: list[int] = []
    handles = [
        block.register_forward_hook(lambda *_, number=number: called.append(number))
        for number, block in enumerate(loaded.model.layers)
    ]
    try:
        options = {"block_rows": 171, "layers": (0, 1), "batch_tokens": 100}
        (early,) = capture(loaded, ragged_tokens, ["residual", "mlp_output"], **options)
        assert set(called) == {0}
        np.testing.assert_array_equal(early.values["residual"].shape, (2, 171, 32))
        for layer in range(2):
            assert (
                relative_error(early.values["residual"][layer], whole.values["residual"][layer])
                < SAME_ROW
            )
        assert (
            relative_error(early.values["mlp_output"][0], whole.values["mlp_output"][0]) < SAME_ROW
        )
        called.clear()
        list(capture(loaded, ragged_tokens, ["residual", "final_norm"], **options))
        assert set(called) == {0, 1, 2}
    finally:
        for handle in handles:
            handle.remove()
    (again,) = capture(loaded, ragged_tokens, ["residual", "mlp_output"], block_rows=171)
    np.testing.assert_array_equal(again.values["residual"], whole.values["residual"])


def test_progress_counts_real_tokens(tiny_model: Build, ragged_tokens: Tokens) -> None:
    done: list[int] = []
    loaded = tiny_model("gpt2")
    list(capture(loaded, ragged_tokens, ["residual"], block_rows=64, progress=done.append))
    assert sum(done) == len(ragged_tokens) == 171


def test_a_site_that_the_model_lacks_is_refused(tiny_model: Build, ragged_tokens: Tokens) -> None:
    with pytest.raises(UnknownSiteError, match=r"'final_norm' is not a site .* it has residual"):
        capture(tiny_model("bert"), ragged_tokens, ["final_norm"], block_rows=64)


def test_ids_of_another_vocabulary_are_refused(tiny_model: Build) -> None:
    with pytest.raises(InputError, match=r"token id 96 is outside .* 0 to 95"):
        capture(tiny_model("bert"), from_ids([np.array([96])]), ["residual"], block_rows=4)


def test_sequences_beyond_the_models_limit_are_refused(tiny_model: Build) -> None:
    # RoBERTa numbers positions from the padding id + 1, so that 63 of its 64 remain.
    tokens = from_ids([np.full(64, 5)])
    with pytest.raises(InputError, match="a sequence has 64 tokens, roberta takes 63"):
        capture(tiny_model("roberta"), tokens, ["residual"], block_rows=4)


def test_losses_are_the_models_own(tiny_model: Build, ragged_tokens: Tokens) -> None:
    loaded = tiny_model("gpt2", head=True)
    (block,) = capture(loaded, ragged_tokens, ["token_loss"], block_rows=171, batch_tokens=90)
    losses = block.values["token_loss"]
    assert np.array_equal(np.isnan(losses), ragged_tokens.position == 0)
    for sequence in (0, 1, 6):
        rows = ragged_tokens.sequence_rows(sequence)
        ids = torch.from_numpy(ragged_tokens.token_id[rows][None].astype(np.int64))
        with torch.inference_mode():
            expected = float(loaded.model(ids, labels=ids).loss)
        # Both average at most 39 float32 numbers of about 5.
        assert np.nanmean(losses[rows]) == pytest.approx(expected, rel=1e-5)


def test_there_is_no_loss_without_a_head(tiny_model: Build) -> None:
    assert "token_loss" not in available_sites(tiny_model("gpt2").stack)


def test_products_of_float32_keep_all_bits_and_settings_come_back(
    tiny_model: Build, ragged_tokens: Tokens
) -> None:
    loaded = tiny_model("gpt2")
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    seen: list[tuple[str, str, str, bool, bool]] = []

    def settings() -> tuple[str, str, str, bool, bool]:
        chosen = (cudnn.conv.fp32_precision, matmul.fp32_precision)
        return (
            *chosen,
            torch.backends.mkldnn.matmul.fp32_precision,
            cudnn.deterministic,
            (cudnn.benchmark),
        )

    def note(*_: object) -> None:
        seen.append(settings())

    handle = loaded.model.h[0].register_forward_pre_hook(note)
    torch.set_float32_matmul_precision("medium")
    try:
        before = settings()
        list(capture(loaded, ragged_tokens, ["residual"], block_rows=171))
        assert set(seen) == {("ieee", "ieee", "ieee", True, False)}
        assert settings() == before
        assert before[2] != "ieee"
    finally:
        torch.set_float32_matmul_precision("highest")
        handle.remove()
