"""Runs a model without leaving a trace in it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch dropout and gradients off, and put every module back into the mode it had."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for module in training:
            module.training = True


def run(model: nn.Module, token_ids: Tensor, mask: Tensor) -> object:
    """Run a text model over a batch.

    Position ids are left to the model: with padding on the right, its own are right.

    Args:
        model: A model of `transformers`, with or without a head.
        token_ids: (sequence, position) ids.
        mask: (sequence, position) 1 for real tokens, 0 for padding, on the right only.

    Returns:
        The model's own output object.
    """
    accepted = inspect.signature(model.forward).parameters
    arguments: dict[str, Tensor | bool] = {"input_ids": token_ids}
    if "attention_mask" in accepted:
        arguments["attention_mask"] = mask
    if "use_cache" in accepted:
        arguments["use_cache"] = False
    output: object = model(**arguments)
    return output
