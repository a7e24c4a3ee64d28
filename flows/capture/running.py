"""Runs a model without leaving a trace in it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from typing import Final

import torch
from torch import Tensor, nn

_PRODUCTS: Final = ("cudnn.conv", "cudnn.rnn", "cuda.matmul", "mkldnn.conv", "mkldnn.matmul")
_FULL_PRECISION: Final = "ieee"
"""How torch calls products of float32 whose factors keep all their bits."""


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch dropout and gradients off, and put every module back into the mode it had."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.inference_mode(), _exactly():
            yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def _exactly() -> Iterator[None]:
    """Multiply float32 as float32, and always alike; restore what the process had chosen.

    On GPUs, convolutions take factors of 10 bits unless told otherwise, and any product does where
    the caller has called for speed; so do processors with instructions for bfloat16.
    """
    cudnn = torch.backends.cudnn
    products = [attrgetter(name)(torch.backends) for name in _PRODUCTS]
    had = [product.fp32_precision for product in products]
    was_deterministic, was_searching = cudnn.deterministic, cudnn.benchmark
    for product in products:
        product.fp32_precision = _FULL_PRECISION
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        for product, precision in zip(products, had, strict=True):
            product.fp32_precision = precision
        cudnn.deterministic, cudnn.benchmark = was_deterministic, was_searching


def run(model: nn.Module, inputs: Mapping[str, Tensor]) -> object:
    """Run a model over a batch.

    Args:
        model: A model of `transformers`, or a part of one that can be run alone.
        inputs: Arguments by name; a mask that the model does not take is left out.

    Returns:
        The model's own output object.
    """
    accepted = inspect.signature(model.forward).parameters
    arguments: dict[str, Tensor | bool] = {
        name: value
        for name, value in inputs.items()
        if name in accepted or not name.endswith("attention_mask")
    }
    if "use_cache" in accepted:
        arguments["use_cache"] = False
    output: object = model(**arguments)
    return output


def text_inputs(token_ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Return the arguments of a text model.

    Position ids are left to the model: with padding on the right, its own are right.

    Args:
        token_ids: (sequence, position) ids.
        mask: (sequence, position) 1 for real tokens, 0 for padding, on the right only.
    """
    return {"input_ids": token_ids, "attention_mask": mask}


def decoder_inputs(token_ids: Tensor, mask: Tensor, start: int) -> dict[str, Tensor]:
    """Return the arguments of an encoder-decoder whose decoder is shown the encoder's text.

    The decoder reads the same tokens one position later, after its start token, as in training
    on copies.

    Args:
        token_ids: (sequence, position) ids of the encoder.
        mask: (sequence, position) 1 for real tokens, 0 for padding, on the right only.
        start: Id of the token that the decoder starts with.
    """
    shifted = token_ids.roll(1, dims=1)
    shifted[:, 0] = start
    return {
        **text_inputs(token_ids, mask),
        "decoder_input_ids": shifted,
        "decoder_attention_mask": mask,
    }
