"""A single untrained block, fed embeddings as they are and a vector common to all of them.

The model around the block still computes masks and positions; only what its block is given is
replaced, and no norm or position comes between. So blocks of every family can be looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from flows.capture.errors import StructureError
from flows.capture.random_sources import BlockSettings
from flows.capture.rotary import Unrotated
from flows.capture.stack import Stack

COMMON_BIAS: Final = "common_bias"
"""Buffer of the model that holds the common vector, so that its digest tells blocks apart."""

_OWN_STREAM: Final = 1 << 40
"""Added to the seed: biases must not repeat the numbers that the weights were drawn from."""

_LINEAR: Final = (nn.Linear, Conv1D)


def draw_common_bias(model: PreTrainedModel, norm: float) -> None:
    """Draw the vector common to all inputs, next from the generator of the process.

    Args:
        model: A model of one block, just drawn.
        norm: Norm of the vector, whose direction is drawn.
    """
    direction = torch.randn(model.config.get_text_config().hidden_size)
    model.register_buffer(COMMON_BIAS, norm * direction / direction.norm())


def set_up_block(
    model: PreTrainedModel, stacks: Sequence[Stack], settings: BlockSettings, seed: int
) -> None:
    """Scale queries and keys, draw biases, and feed the block embeddings plus the common vector.

    Args:
        model: A model of one block, with the common vector.
        stacks: Where its parts are.
        settings: What is asked of it.
        seed: Seed of the biases.

    Raises:
        StructureError: If there is more than one block, its embeddings are not as wide as it is,
            or its queries and keys cannot be scaled.
    """
    if len(stacks) != 1 or stacks[0].n_blocks != 1:
        raise StructureError(
            f"{model.config.model_type} has {len(stacks)} stacks of "
            f"{stacks[0].n_blocks} blocks: expected one block"
        )
    (stack,) = stacks
    embeddings = model.get_input_embeddings()
    width = getattr(embeddings, "embedding_dim", None)
    if width != stack.width:
        raise StructureError(
            f"{model.config.model_type} has embeddings of {width} entries and blocks of "
            f"{stack.width}: expected the same, to feed a block embeddings as they are"
        )
    if settings.query_key_scale != 1:
        _scale_queries_keys(stack, settings.query_key_scale)
    if settings.bias_std:
        generator = torch.Generator().manual_seed(_OWN_STREAM + seed)
        _draw_biases(stack, settings.bias_std, generator)
    _feed(model, embeddings, stack)


@torch.no_grad()
def _scale_queries_keys(stack: Stack, factor: float) -> None:
    attention = stack.attention
    found = (attention.query, attention.key) if attention is not None else (None,)
    for vectors in found:
        if vectors is None:
            raise StructureError(
                f"the queries and keys of {stack.path} are not found: expected modules that give "
                "them, to scale their weights"
            )
        for module in vectors.modules:
            _scale(module, vectors, factor)


def _scale(module: nn.Module, vectors: Unrotated, factor: float) -> None:
    if isinstance(module, nn.Linear):
        module.weight[vectors.entries] *= factor
    elif isinstance(module, Conv1D):
        module.weight[:, vectors.entries] *= factor
    else:
        raise StructureError(
            f"queries or keys come from a {type(module).__name__}: expected a linear map, to scale "
            "its weights"
        )


@torch.no_grad()
def _draw_biases(stack: Stack, deviation: float, generator: torch.Generator) -> None:
    for module in stack.blocks[0].modules():
        if isinstance(module, _LINEAR) and module.bias is not None:
            drawn = deviation * torch.randn(module.bias.shape, generator=generator)
            module.bias.copy_(drawn)


def _feed(model: PreTrainedModel, embeddings: nn.Module, stack: Stack) -> None:
    embedded: dict[str, Tensor] = {}

    def note(_embeddings: nn.Module, _args: object, output: Tensor) -> None:
        embedded["rows"] = output

    def replace(
        _block: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        rows = embedded["rows"] + model.get_buffer(COMMON_BIAS)
        if args:
            return (rows, *args[1:]), kwargs
        name = next(key for key, value in kwargs.items() if isinstance(value, Tensor))
        return args, kwargs | {name: rows}

    embeddings.register_forward_hook(note)
    stack.blocks[0].register_forward_pre_hook(replace, with_kwargs=True)
