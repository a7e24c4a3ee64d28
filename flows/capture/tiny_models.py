"""The small models that can be trained on the spot: one that reads forward, one that fills in."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import torch
from torch import Tensor
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

Family: TypeAlias = Literal["neox", "bert"]

_MASKED: Final = 0.15
_SHOWN_AS_MASK: Final = 0.8
_SHOWN_AS_ANOTHER: Final = 0.1
_IGNORED: Final = -100
"""Label of a token that the loss leaves out."""


def tiny_model(
    family: Family, tokenizer: PreTrainedTokenizerFast, *, length: int
) -> PreTrainedModel:
    """Draw a model of 6 blocks of width 128 and 4 heads, from the generator of the process.

    Args:
        family: ``neox`` predicts the next token; ``bert`` tokens that are hidden from it.
        tokenizer: Gives the vocabulary.
        length: Longest sequence.
    """
    sizes = {
        "vocab_size": len(tokenizer),
        "hidden_size": 128,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "intermediate_size": 512,
        "max_position_embeddings": length,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    if family == "neox":
        return GPTNeoXForCausalLM(GPTNeoXConfig(**sizes, attention_dropout=0.0, hidden_dropout=0.0))
    return BertForMaskedLM(
        BertConfig(
            **sizes,
            pad_token_id=tokenizer.eos_token_id,
            attention_probs_dropout_prob=0.0,
            hidden_dropout_prob=0.0,
        )
    )


def training_loss(
    model: PreTrainedModel, batch: Tensor, mask_id: int | None, generator: torch.Generator
) -> Tensor:
    """Return the mean loss over the tokens that a model has to predict, in nats.

    Args:
        model: A model of :func:`tiny_model`.
        batch: (sequence, position) token ids.
        mask_id: Id that stands for a hidden token; None for a model that predicts the next one.
        generator: Draws which tokens are hidden: 15 %, of which 80 % are shown as the mask, 10 %
            as some other token and 10 % as they are (Devlin et al. 2019).
    """
    if mask_id is None:
        loss: Tensor = model(input_ids=batch, labels=batch, use_cache=False).loss
        return loss
    hidden = torch.rand(batch.shape, generator=generator) < _MASKED
    labels = batch.masked_fill(~hidden, _IGNORED)
    how = torch.rand(batch.shape, generator=generator)
    others = torch.randint(int(model.config.vocab_size), batch.shape, generator=generator)
    shown = batch.masked_fill(hidden & (how < _SHOWN_AS_MASK), mask_id)
    replaced = hidden & (how >= _SHOWN_AS_MASK) & (how < _SHOWN_AS_MASK + _SHOWN_AS_ANOTHER)
    masked: Tensor = model(input_ids=torch.where(replaced, others, shown), labels=labels).loss
    return masked
