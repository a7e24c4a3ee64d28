"""Short sequences that a model is shown to find out how it is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import torch
from torch import Tensor
from transformers import PreTrainedModel

from flows.capture.errors import StructureError
from flows.capture.running import run, text_inputs

SHAPE: Final = (2, 3)
"""Sequences and positions of the usual probe."""

SEQUENCES: Final = ((0, 1, 2), (0, 1, 3))
"""The usual probe: the two differ in their last token."""


Probe = Callable[[Sequence[Sequence[int]]], object]
"""Runs a few short sequences, all of one length, and returns the model's own output.

The numbers given are counted from the middle of the vocabulary, where no id has a role of its own.
"""


def text_probe(model: PreTrainedModel) -> Probe:
    """Return the probe of a model that reads one text."""
    return lambda sequences: run(model, _inputs(model, sequences))


def decoder_probe(model: PreTrainedModel) -> Probe:
    """Return the probe of the decoder of an encoder-decoder, whose encoder always sees the same."""

    def probe(sequences: Sequence[Sequence[int]]) -> object:
        given = _inputs(model, sequences)
        return run(
            model,
            {
                **_inputs(model, [[0] * len(sequences[0])] * len(sequences)),
                "decoder_input_ids": given["input_ids"],
                "decoder_attention_mask": given["attention_mask"],
            },
        )

    return probe


def token_ids(model: PreTrainedModel, sequences: Sequence[Sequence[int]]) -> Tensor:
    """Return the ids (sequence, position) of the vocabulary that stand for numbers of a probe."""
    vocabulary = getattr(model.config.get_text_config(), "vocab_size", None) or 8
    return ((torch.tensor(sequences) + vocabulary // 2) % vocabulary).to(model.device)


def _inputs(model: PreTrainedModel, sequences: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    shown = token_ids(model, sequences)
    return text_inputs(shown, torch.ones_like(shown))


def hidden_states(output: object) -> Tensor | None:
    """Return the hidden states among what a module returns, None if there are none."""
    first = output[0] if isinstance(output, tuple | list) and output else output
    return first if isinstance(first, Tensor) else None


def as_rows(hidden: Tensor) -> Tensor:
    """Return hidden states (sequence, position, dim) as they are, and maps row by row.

    Args:
        hidden: Hidden states, or maps (image, channel, row, column).
    """
    return hidden.flatten(2).transpose(1, 2) if hidden.dim() == 4 else hidden


def hidden_argument(args: tuple[object, ...], kwargs: Mapping[str, object]) -> Tensor:
    """Return the hidden states among the arguments of a block.

    Raises:
        StructureError: If no argument is a tensor.
    """
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            return value
    raise StructureError("a block was called without any tensor: expected its hidden states")
