"""Tiny models with random weights, built from their configs without a network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from flows.capture import Tokens, find_checkpoints, from_ids
from flows.capture.weights import LoadedModel, load_model

VOCABULARY = 96

_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_WIDE = {"intermediate_size": 48}
_INNER = {"n_inner": 48}
_GROUPED = _WIDE | {"num_key_value_heads": 2}
_HEADS = _GROUPED | {"head_dim": 8}

FAMILIES: dict[str, dict[str, int | None]] = {
    "albert": _WIDE | {"embedding_size": 16},
    "bert": _WIDE,
    "bloom": {"max_position_embeddings": None},
    "codegen": _INNER | {"rotary_dim": 4, "pad_token_id": None},
    "distilbert": {"hidden_dim": 48},
    "electra": _WIDE | {"embedding_size": 16},
    "falcon": {},
    "gemma": _HEADS,
    "gemma2": _HEADS,
    "gemma3_text": _HEADS,
    "gpt2": _INNER,
    "gpt_neox": _WIDE,
    "gptj": _INNER | {"rotary_dim": 4, "pad_token_id": None},
    "llama": _HEADS,
    "mamba": {"state_size": 4, "num_attention_heads": None, "max_position_embeddings": None},
    "mistral": _HEADS,
    "mixtral": _HEADS | {"num_local_experts": 3},
    "modernbert": _WIDE | {"cls_token_id": 1, "sep_token_id": 2},
    "mpt": {"max_position_embeddings": None},
    "olmo": _GROUPED,
    "olmo2": _GROUPED,
    "olmoe": _GROUPED | {"num_experts": 3, "num_experts_per_tok": 2},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32, "initializer_range": None},
    "phi": _GROUPED,
    "phi3": _GROUPED,
    "qwen2": _GROUPED,
    "qwen3": _HEADS,
    "qwen3_moe": _GROUPED
    | {
        "num_experts": 3,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
    },
    "roberta": _WIDE,
}
"""Families, and the entries of their configs that are not as in `_SIZES`; None leaves one out."""


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(params=sorted(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    """Return the model type of each family in turn."""
    return str(request.param)


@pytest.fixture(scope="session")
def tiny_model() -> Callable[..., LoadedModel]:
    """Give the tiny model of a family, the same one each time."""
    built: dict[tuple[str, bool, str | None, torch.dtype | None], LoadedModel] = {}

    def build(
        family: str,
        *,
        head: bool = False,
        attention: Literal["eager", "sdpa"] | None = None,
        dtype: torch.dtype | None = None,
    ) -> LoadedModel:
        key = family, head, attention, dtype
        if key not in built:
            entries = {**_SIZES, **FAMILIES[family]}
            listed = [f"{key}={value}" for key, value in entries.items() if value is not None]
            source = f"random:{family}:{','.join(listed)}"
            checkpoint = find_checkpoints(source)[0]
            built[key] = load_model(
                checkpoint, device="cpu", head=head, attention=attention, dtype=dtype
            )
        return built[key]

    return build


@pytest.fixture(scope="session")
def ragged_tokens() -> Tokens:
    """Return 11 sequences of 1 to 40 random ids, 171 tokens."""
    rng = np.random.default_rng(0)
    lengths = [5, 40, 1, 17, 17, 3, 29, 8, 40, 2, 9]
    return from_ids([rng.integers(3, VOCABULARY, size=length) for length in lengths])


@pytest.fixture(scope="session")
def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level BPE that adds <s> and </s>, trained on one sentence."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<pad>", "<s>", "</s>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the cat sat on the mat and the rat sat on the cat"], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        model_max_length=64,
    )


@pytest.fixture
def saved_model(
    tmp_path: Path, tiny_model: Callable[..., LoadedModel], tiny_tokenizer: PreTrainedTokenizerFast
) -> Path:
    """Return the folder of a saved GPT-NeoX with its tokenizer."""
    directory = tmp_path / "tiny-neox"
    tiny_model("gpt_neox", head=True).model.save_pretrained(directory)
    tiny_tokenizer.save_pretrained(directory)
    return directory
