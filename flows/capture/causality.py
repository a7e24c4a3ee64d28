"""Whether a model sees what comes after a position."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from transformers import PreTrainedModel

_LEAK: Final = 1e-3
"""Change at an earlier position, relative to the change where the token differs, above which
a model sees what comes later; rounding gives about 1e-6, untrained attention above 5e-3."""


def is_causal(model: PreTrainedModel, output: Tensor) -> bool:
    """Tell whether earlier positions stay as they are when the last token is another one.

    Args:
        model: What was run; its config decides where the output holds no numbers.
        output: (2, position, dim) hidden states of two sequences that differ in their last token.
    """
    if not bool(torch.isfinite(output).all()):
        # Broken weights show nothing; the head that they were saved with does.
        saved_as = model.config.architectures or ()
        return any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in saved_as)
    difference = (output[0].float() - output[1].float()).norm(dim=-1)
    return bool(difference[0] <= _LEAK * difference[-1])
