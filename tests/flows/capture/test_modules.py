from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from flows.capture import Tokens, find_checkpoints
from flows.capture.errors import UnknownSiteError
from flows.capture.forward import capture
from flows.capture.guard import check_batching
from flows.capture.sites import site_shapes, sites_here
from flows.capture.weights import LoadedModel, load_model
from store.schema import site_variable, unit_dimension

Build = Callable[..., LoadedModel]

ACTIVATION = "module:model.layers.{i}.mlp.act_fn"


def test_hidden_units_of_every_block(tiny_model: Build, ragged_tokens: Tokens) -> None:
    loaded = tiny_model("llama")
    sites = ["residual", ACTIVATION, "module:norm"]
    (block,) = capture(loaded, ragged_tokens, sites, block_rows=171, batch_tokens=100)
    got = block.values[ACTIVATION]
    assert got.shape == (3, 171, 48)
    for i, layer in enumerate(loaded.model.layers):
        with torch.no_grad():
            given = torch.from_numpy(block.values["residual"][i]) + 0.0
            rows = ragged_tokens.sequence_rows(2)  # one token: attention gives its own value
            hidden = given[rows]
            value = layer.self_attn.v_proj(layer.input_layernorm(hidden))
            value = value.view(1, 2, 8).repeat_interleave(2, 1).view(1, 32)
            hidden = hidden + layer.self_attn.o_proj(value)
            expected = layer.mlp.act_fn(layer.mlp.gate_proj(layer.post_attention_layernorm(hidden)))
        np.testing.assert_allclose(got[i][rows], expected.numpy(), rtol=1e-4, atol=1e-5)
    assert block.values["module:norm"].shape == (171, 32)


def test_modules_pass_the_guard_with_and_without_a_head(
    tiny_model: Build, ragged_tokens: Tokens
) -> None:
    for family, site in (
        ("albert", "module:encoder.albert_layer_groups.{i}.albert_layers.0.ffn"),
        ("mixtral", "module:layers.{i}.mlp.gate"),
        ("gpt2", "module:transformer.h.{i}.mlp.c_fc"),
    ):
        for head in (False, True):
            if head and family != "gpt2":
                continue
            loaded = tiny_model(family, head=head)
            assert check_batching(loaded, ragged_tokens, [site]) < 1e-5


def test_dimensions_are_those_of_the_store(tiny_model: Build) -> None:
    (shape,) = site_shapes(tiny_model("llama").stack, [ACTIVATION])
    assert ("step", *shape.dims) == site_variable(ACTIVATION).dims
    assert dict(shape.sizes) == {"block": 3, unit_dimension(ACTIVATION): 48}


@pytest.mark.parametrize(
    ("site", "message"),
    [
        ("module:layers.{i}.mpl.act_fn", r"names no module of LlamaModel: near ones are .*mlp.act"),
        ("module:layers.0.mlp.{i}", "names no module"),
        ("module:layers.1.mlp", None),
        ("module:layers.{i}.self_attn", None),
        ("module:rotary_emb", r"gives torch.float32 \(1, 7, 8\) for 5 sequences of 7 tokens: exp"),
        ("module:layers.{i}.mlp.down_proj.weight", "names no module"),
        ("module:layers", "is called 0 times: expected one"),
    ],
)
def test_what_is_no_row_a_token_is_refused(
    tiny_model: Build, site: str, message: str | None
) -> None:
    stack = tiny_model("llama").stack
    if message is None:
        assert site_shapes(stack, [site])[0].features == (32,)
        return
    with pytest.raises(UnknownSiteError, match=message):
        site_shapes(stack, [site])


def test_a_module_that_is_shared_is_called_in_every_block(tiny_model: Build) -> None:
    stack = tiny_model("albert").stack
    with pytest.raises(UnknownSiteError, match="is called 3 times: expected one"):
        site_shapes(stack, ["module:encoder.albert_layer_groups.0.albert_layers.0.ffn"])


def test_each_stack_has_its_own_modules() -> None:
    sizes = "vocab_size=96,d_model=32,d_kv=8,num_heads=4,d_ff=48,num_layers=2,num_decoder_layers=2"
    loaded = load_model(find_checkpoints(f"random:t5:{sizes}")[0], device="cpu")
    encoder, decoder = loaded.stacks
    wanted = ("residual", "module:encoder.block.{i}.layer.0", "module:decoder.block.{i}.layer.1")
    assert sites_here(encoder, loaded.stacks, wanted) == wanted[:2]
    assert sites_here(decoder, loaded.stacks, wanted) == (wanted[0], wanted[2])
