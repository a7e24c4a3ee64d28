from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import nn

from flows.capture.errors import StructureError
from flows.capture.structure import find_stacks
from flows.capture.weights import LoadedModel

Build = Callable[..., LoadedModel]

ENCODERS = {"albert", "bert", "distilbert", "electra", "modernbert", "roberta"}
POST_NORM = ENCODERS - {"modernbert"}


def test_parts_of_every_family_are_found(tiny_model: Build, family: str) -> None:
    stack = tiny_model(family).stack
    assert stack.n_blocks == 3
    assert stack.width == 32
    assert stack.causal == (family not in ENCODERS)
    assert (stack.final_norm is None) == (family in POST_NORM)


def test_a_block_that_is_called_many_times_is_one_block(tiny_model: Build) -> None:
    stack = tiny_model("albert").stack
    assert len(stack.blocks) == 1
    assert stack.n_blocks == 3


def test_parts_are_the_same_with_a_head(tiny_model: Build) -> None:
    stack = tiny_model("gpt2", head=True).stack
    assert stack.path == "transformer.h"
    assert stack.final_norm is tiny_model("gpt2", head=True).model.transformer.ln_f


def test_unknown_structure_shows_what_was_found(tiny_model: Build) -> None:
    model = tiny_model("bert").model
    expected = r"BertModel: expected encoder.layers, 0 fit; it has encoder.layer \(3 × BertLayer, "
    with pytest.raises(StructureError, match=expected):
        find_stacks(model, "encoder.layers")
    assert find_stacks(model, "encoder.layer")[0].n_blocks == 3


def test_watching_leaves_no_trace(tiny_model: Build) -> None:
    model = tiny_model("gpt2").model
    model.train()
    model.h[1].eval()
    modes, hooks = _state(model)
    find_stacks(model)
    assert _state(model) == (modes, hooks)
    model.eval()


def _state(model: nn.Module) -> tuple[list[bool], list[list[int]]]:
    modes = [module.training for module in model.modules()]
    hooks = [[*module._forward_hooks, *module._forward_pre_hooks] for module in model.modules()]
    return modes, hooks
