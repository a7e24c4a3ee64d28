from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb
from transformers.models.llama import modeling_llama

from flows.capture import Tokens, find_checkpoints
from flows.capture.errors import StructureError, UnknownSiteError
from flows.capture.forward import capture, capture_whole
from flows.capture.parts import Part
from flows.capture.sites import available_sites, site_shapes
from flows.capture.weights import LoadedModel, load_model

Build = Callable[..., LoadedModel]

# Sums of some dozens of float32 numbers of order 1 to 10, added up in another order.
CLOSE = {"rtol": 1e-4, "atol": 1e-4}

ROW_SITES = {
    "attention_entropy",
    "attention_first_key",
    "attention_logit_deviation",
    "attention_max",
    "attention_received",
}
PROBABILITIES = "attention_probability"
# Their attention does not go through the interface of transformers, or there is none.
UNWATCHED = {"bloom", "falcon", "mamba", "mpt"}


def values(loaded: LoadedModel, tokens: Tokens, *sites: str) -> dict[str, NDArray[np.float32]]:
    return capture_whole(Part(loaded, tokens, sites, 1), batch_tokens=150)


def test_which_sites_each_family_has(tiny_model: Build, family: str) -> None:
    expected = {"residual"}
    stack = tiny_model(family, attention="eager").stack
    if stack.final_norm is not None:
        expected.add("final_norm")
    if family != "mamba":
        expected |= {"attention_output", "mlp_output"}
    if family != "mamba":
        expected |= {*ROW_SITES, PROBABILITIES, "query", "key", "value"}
    if family not in {*UNWATCHED, "gpt2", "opt"} and (stack.causal or family == "modernbert"):
        expected |= {"query_rotary", "key_rotary"}
    assert set(available_sites(stack)) == expected
    plain = tiny_model(family)
    assert (plain.attention == "eager") or not ROW_SITES & set(available_sites(plain.stack))


def test_shapes_are_in_the_order_of_the_store(tiny_model: Build, ragged_tokens: Tokens) -> None:
    loaded = tiny_model("llama", attention="eager")
    got = values(loaded, ragged_tokens, *available_sites(loaded.stack))
    for shape in site_shapes(loaded.stack, available_sites(loaded.stack), key_positions=40):
        sizes = {**shape.sizes, "token": len(ragged_tokens)}
        assert got[shape.name].shape == tuple(sizes[dim] for dim in shape.dims)
    # Four heads share two keys and values, which stay two.
    assert got["query"].shape == (3, 4, 171, 8)
    assert got["key"].shape == got["value"].shape == (3, 2, 171, 8)
    assert got["attention_entropy"].shape == (3, 4, 171)


def test_sublayers_add_up_to_the_block(
    tiny_model: Build, family: str, ragged_tokens: Tokens
) -> None:
    loaded = tiny_model(family)
    if "attention_output" not in available_sites(loaded.stack):
        pytest.skip("one sublayer only")
    got = values(loaded, ragged_tokens, "residual", "attention_output", "mlp_output")
    given, output = got["residual"][:-1], got["residual"][1:]
    attention, mlp = got["attention_output"], got["mlp_output"]
    if loaded.stack.final_norm is not None:
        np.testing.assert_allclose(given + attention + mlp, output, **CLOSE)
        return
    # Norms without weights of their own at the start: only centred and scaled.
    inner = _normed(given + attention)
    np.testing.assert_allclose(_normed(inner + mlp), output, **CLOSE)


def _normed(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return (rows - rows.mean(-1, keepdims=True)) / rows.std(-1, keepdims=True)


def test_attention_and_mlp_are_not_confused(tiny_model: Build, ragged_tokens: Tokens) -> None:
    # In GPT-NeoX both read the same input, so that their order is all that tells them apart.
    loaded = tiny_model("gpt_neox")
    block = loaded.model.layers[1]
    got = values(loaded, ragged_tokens, "residual", "mlp_output")
    with torch.no_grad():
        expected = block.mlp(block.post_attention_layernorm(torch.from_numpy(got["residual"][1])))
    np.testing.assert_allclose(got["mlp_output"][1], expected.numpy(), **CLOSE)


def test_fused_projections_are_taken_apart(tiny_model: Build, ragged_tokens: Tokens) -> None:
    loaded = tiny_model("gpt_neox")
    sites = ("residual", "query", "key", "value", "query_rotary", "key_rotary")
    got = values(loaded, ragged_tokens, *sites)
    layer = loaded.model.layers[2]
    normed = layer.input_layernorm(torch.from_numpy(got["residual"][2]))
    with torch.no_grad():
        fused = layer.attention.query_key_value(normed).view(-1, 4, 24).transpose(0, 1)
    for part, site in zip(fused.split(8, dim=-1), ("query", "key", "value"), strict=True):
        np.testing.assert_allclose(got[site][2], part.numpy(), **CLOSE)
    cosine, sine = loaded.model.rotary_emb(normed, torch.from_numpy(ragged_tokens.position)[None])
    rotated = apply_rotary_pos_emb(fused[None, ..., :8], fused[None, ..., 8:16], cosine, sine)
    np.testing.assert_allclose(got["query_rotary"][2], rotated[0][0].numpy(), **CLOSE)
    np.testing.assert_allclose(got["key_rotary"][2], rotated[1][0].numpy(), **CLOSE)


FALCON_SIZES = "hidden_size=32,num_attention_heads=4,vocab_size=96"
FALCONS = (
    "multi_query=true",
    "multi_query=false,alibi=true",
    "new_decoder_architecture=true,num_kv_heads=2",
)


@pytest.mark.parametrize(
    "source",
    [
        "bloom:n_layer=2,",
        "mpt:n_layers=2,",
        *(f"falcon:num_hidden_layers=2,{more}," for more in FALCONS),
    ],
)
def test_fused_projections_of_unwatched_attention(ragged_tokens: Tokens, source: str) -> None:
    sizes = FALCON_SIZES
    if source.startswith("mpt"):
        sizes = "d_model=32,n_heads=4,vocab_size=96"
    loaded = load_model(find_checkpoints(f"random:{source}{sizes}")[0], device="cpu")
    given: list[Tensor] = []
    block = loaded.stack.blocks[1]
    attention = block.attn if source.startswith("mpt") else block.self_attention
    fused = attention.Wqkv if source.startswith("mpt") else attention.query_key_value
    handle = fused.register_forward_hook(lambda _m, _a, output: given.append(output))
    try:
        got = values(loaded, ragged_tokens.select([1]), "query", "key", "value")
    finally:
        handle.remove()
    if source.startswith("mpt"):
        parts = [part.view(1, -1, 4, 8) for part in given[0].chunk(3, dim=2)]
    elif source.startswith("bloom"):
        parts = [part.transpose(1, 2) for part in attention._reshape(given[0])]
    else:
        parts = list(attention._split_heads(given[0]))
    for site, part in zip(("query", "key", "value"), parts, strict=True):
        expected = part[0].transpose(0, 1).numpy()
        # Falcon's own splitting repeats a key for each query of its group.
        own = np.repeat(got[site][1], len(expected) // len(got[site][1]), axis=0)
        np.testing.assert_array_equal(own, expected)


@pytest.mark.parametrize("family", ["gpt2", "albert", "llama", "bloom", "falcon", "mpt"])
def test_reductions_of_attention_rows(
    tiny_model: Build, family: str, ragged_tokens: Tokens
) -> None:
    require_model_s_own_reductions(tiny_model(family, attention="eager"), ragged_tokens)


@pytest.mark.parametrize("more", [more for more in FALCONS if "alibi" not in more])
def test_reductions_of_falcons_rows(more: str, ragged_tokens: Tokens) -> None:
    source = f"random:falcon:num_hidden_layers=2,{more},{FALCON_SIZES}"
    loaded = load_model(find_checkpoints(source)[0], device="cpu", attention="eager")
    require_model_s_own_reductions(loaded, ragged_tokens.select([1, 3, 5]))


def test_eager_attention_that_is_another_is_refused() -> None:
    # In transformers 5.24 that of Falcon adds the bias of positions twice.
    source = "random:falcon:num_hidden_layers=2,multi_query=false,alibi=true,initializer_range=0.3,"
    (checkpoint,) = find_checkpoints(source + FALCON_SIZES)
    assert load_model(checkpoint, device="cpu").attention == "sdpa"
    with pytest.raises(StructureError, match=r"FalconModel gives other .* sites of attention rows"):
        load_model(checkpoint, device="cpu", attention="eager")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_few_bits_do_not_hide_that_eager_attention_is_another(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = modeling_llama.eager_attention_forward

    def scaled(*arguments: object, **more: object) -> tuple[Tensor, Tensor]:
        output, probabilities = own(*arguments, **more)
        return 1.2 * output, probabilities

    source = "random:llama:num_hidden_layers=2,intermediate_size=48,initializer_range=0.3,"
    (checkpoint,) = find_checkpoints(source + FALCON_SIZES)
    loaded = load_model(checkpoint, device="cpu", dtype=dtype, attention="eager")
    assert loaded.attention == "eager"
    monkeypatch.setattr(modeling_llama, "eager_attention_forward", scaled)
    with pytest.raises(StructureError, match="LlamaModel gives other hidden states"):
        load_model(checkpoint, device="cpu", dtype=dtype, attention="eager")


def require_model_s_own_reductions(loaded: LoadedModel, ragged_tokens: Tokens) -> None:
    got = values(loaded, ragged_tokens, *sorted(ROW_SITES))
    for sequence in range(ragged_tokens.n_sequences):
        rows = ragged_tokens.sequence_rows(sequence)
        ids = torch.from_numpy(ragged_tokens.token_id[rows][None].astype(np.int64))
        with torch.inference_mode():
            attentions = loaded.model(ids, output_attentions=True).attentions
        for block, probabilities in enumerate(attentions):
            expected = _reductions(probabilities[0].double(), causal=loaded.causal)
            for site, numbers in expected.items():
                np.testing.assert_allclose(got[site][block][:, rows], numbers, **CLOSE)


def _reductions(probabilities: Tensor, *, causal: bool) -> dict[str, NDArray[np.float64]]:
    """Compute them row by row from probabilities (head, position, key_position)."""
    length = probabilities.shape[1]
    found = {site: np.zeros(probabilities.shape[:2]) for site in ROW_SITES}
    for head, matrix in enumerate(probabilities.numpy()):
        for position, whole in enumerate(matrix):
            row = whole[: position + 1 if causal else length]
            at = head, position
            if len(row) > 1:
                found["attention_entropy"][at] = -(row * np.log(row)).sum() / np.log(len(row))
            found["attention_first_key"][at] = row[0]
            found["attention_logit_deviation"][at] = np.log(row).std()
            found["attention_max"][at] = row.max()
            # Keys that rows after them see, all rows where the model is not causal.
            found["attention_received"][at] = matrix[position if causal else 0 :, position].mean()
    return found


def test_watching_attention_leaves_no_trace(tiny_model: Build, ragged_tokens: Tokens) -> None:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    before = dict(ALL_ATTENTION_FUNCTIONS)
    loaded = tiny_model("llama", attention="eager")

    def fail(n_tokens: int) -> None:
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        list(
            capture(loaded, ragged_tokens, ["query", "attention_max"], block_rows=9, progress=fail)
        )
    assert dict(ALL_ATTENTION_FUNCTIONS) == before


def test_rows_need_eager_attention(tiny_model: Build, ragged_tokens: Tokens) -> None:
    with pytest.raises(UnknownSiteError, match=r"'attention_max' is not a site .* it has residual"):
        values(tiny_model("llama"), ragged_tokens, "attention_max")
