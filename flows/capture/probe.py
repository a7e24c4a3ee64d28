"""Short sequences that a model is shown to find out how it is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor
from transformers import PreTrainedModel

from flows.capture.errors import StructureError
from flows.capture.running import run

SHAPE: Final = (2, 3)
"""Sequences and positions of the usual probe."""

SEQUENCES: Final = ((0, 1, 2), (0, 1, 3))
"""The usual probe: the two differ in their last token."""


def run_probe(model: PreTrainedModel, sequences: Sequence[Sequence[int]] = SEQUENCES) -> object:
    """Run a few short sequences.

    Args:
        model: The model.
        sequences: Ids, all sequences of one length; they are counted from the middle of the
            vocabulary, where no id has a role of its own.

    Returns:
        The model's own output object.
    """
    vocabulary = getattr(model.config.get_text_config(), "vocab_size", None) or 8
    token_ids = (torch.tensor(sequences) + vocabulary // 2) % vocabulary
    token_ids = token_ids.to(model.device)
    return run(model, token_ids, torch.ones_like(token_ids))


def hidden_states(output: object) -> Tensor | None:
    """Return the hidden states among what a module returns, None if there are none."""
    first = output[0] if isinstance(output, tuple | list) and output else output
    return first if isinstance(first, Tensor) else None


def hidden_argument(args: tuple[object, ...], kwargs: Mapping[str, object]) -> Tensor:
    """Return the hidden states among the arguments of a block.

    Raises:
        StructureError: If no argument is a tensor.
    """
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            return value
    raise StructureError("a block was called without any tensor: expected its hidden states")
