"""Which head a model of text is given, so that it predicts the tokens that it was trained to."""

from __future__ import annotations

from typing import Final

from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_MAPPING,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    PreTrainedConfig,
    PreTrainedModel,
)

_OF_NEXT_TOKENS: Final = ("ForCausalLM", "LMHeadModel")
_CLASSES: Final = {
    AutoModel: MODEL_MAPPING,
    AutoModelForCausalLM: MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoModelForMaskedLM: MODEL_FOR_MASKED_LM_MAPPING,
}


def family_of(
    config: PreTrainedConfig, *, head: bool
) -> type[AutoModel | AutoModelForCausalLM | AutoModelForMaskedLM]:
    """Return the class of `transformers` that builds a model, with or without its head.

    Encoders get the head that predicts masked tokens, unless they are set up as decoders or were
    saved as such.

    Args:
        config: Config of the model.
        head: Whether the part that predicts tokens is wanted.
    """
    if not head:
        return AutoModel
    saved_as = config.architectures or ()
    is_decoder = getattr(config, "is_decoder", False) or any(
        name.endswith(_OF_NEXT_TOKENS) for name in saved_as
    )
    masked = type(config) in MODEL_FOR_MASKED_LM_MAPPING
    return AutoModelForMaskedLM if masked and not is_decoder else AutoModelForCausalLM


def class_of(config: PreTrainedConfig, *, head: bool) -> type[PreTrainedModel] | None:
    """Return the class of the model itself, None where a family chooses by more than the config.

    Args:
        config: Config of the model.
        head: Whether the part that predicts tokens is wanted.
    """
    found: object = _CLASSES[family_of(config, head=head)].get(type(config), None)
    if not isinstance(found, type) or not issubclass(found, PreTrainedModel):
        return None
    return found if found.config_class is type(config) else None
