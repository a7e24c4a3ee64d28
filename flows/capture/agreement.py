"""Shows that eager attention, which alone has probabilities, computes what the default one does.

They are two pieces of code in `transformers`, and need not agree: in 5.24 the eager one of Falcon
adds its position bias twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from flows.capture.attention import EAGER
from flows.capture.errors import StructureError
from flows.capture.probe import hidden_states
from flows.capture.quiet import quiet
from flows.capture.running import evaluating
from flows.capture.stack import Stack

_DEFAULT: Final = "sdpa"
"""What `transformers` takes where a model supports it and nothing is asked for."""

_LOOK_AT_CONFIG: Final = frozenset({"falcon"})
"""Model types without a look-up, of which one module has both and asks the config each time."""

_LIMIT: Final[Mapping[torch.dtype, float]] = {torch.float32: 1e-4, torch.float64: 1e-4}
_LIMIT_ELSEWHERE: Final = 5e-2
"""Deviation of the median row that rounding explains: in few bits every block adds to it."""

_SHOWN: Final = [list(range(12)), [11 - n for n in range(12)]]


def require_agreement(model: PreTrainedModel, stacks: Sequence[Stack]) -> None:
    """Refuse a model whose eager attention gives other hidden states than its default one.

    Args:
        model: The model, with eager attention, which it has again afterwards.
        stacks: Its stacks.

    Raises:
        StructureError: If the output of the last block of a stack differs by more than rounding.
    """
    if not model._supports_sdpa or not _can_change(model):
        return
    eager = _outputs(model, stacks)
    try:
        _change(model, _DEFAULT)
        default = _outputs(model, stacks)
    finally:
        _change(model, EAGER)
    limit = _LIMIT.get(model.dtype, _LIMIT_ELSEWHERE)
    for one, other in zip(eager, default, strict=True):
        found = _deviation(one.double(), other.double())
        if not found <= limit:
            raise StructureError(
                f"{type(model).__name__} gives other hidden states with eager attention, which "
                f"alone shows probabilities, than with its default one: the median row differs by "
                f"{found:.1e} of its norm, expected at most {limit:.0e}. Leave sites of attention "
                "rows out, or use a version of transformers in which they agree"
            )


def _can_change(model: PreTrainedModel) -> bool:
    return model.config.model_type in _LOOK_AT_CONFIG or model._can_set_attn_implementation()


def _change(model: PreTrainedModel, attention: str) -> None:
    if model.config.model_type in _LOOK_AT_CONFIG:
        model.config._attn_implementation = attention
    else:
        with quiet():
            model.set_attn_implementation(attention)


def _outputs(model: PreTrainedModel, stacks: Sequence[Stack]) -> list[Tensor]:
    """Return what the last block of each stack gives for a short probe."""
    found: list[Tensor] = []

    def note(_block: nn.Module, _args: object, output: object) -> None:
        hidden = hidden_states(output)
        assert hidden is not None
        found[-1:] = [hidden]

    with evaluating(model):
        for stack in stacks:
            if stack.probe is None:
                continue
            found.append(torch.empty(0))
            handle = stack.blocks[-1].register_forward_hook(note)
            try:
                stack.probe(_SHOWN)
            finally:
                handle.remove()
    return found


def _deviation(one: Tensor, other: Tensor) -> float:
    """Return the norm of the median row's difference, relative to the row's norm."""
    tiny = torch.finfo(torch.float32).tiny
    norms = other.norm(dim=-1).clamp(min=tiny)
    return float(((one - other).norm(dim=-1) / norms).median())
