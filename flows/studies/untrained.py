"""Untrained models of kinds of which no trained one can be had without a network."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from flows.capture.random_sources import RANDOM_PREFIX
from flows.demo import materials

_TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")

Kind = Literal["both", "characters", "vision", "speech", "convolution"]

Tokenizer = Literal["encoder's", "ByT5Tokenizer", "CanineTokenizer"]


@dataclass(frozen=True)
class Untrained:
    """An untrained model.

    Attributes:
        need: What it is looked at for.
        config: Its config.
        tokenizer: Of a model of texts: that of the demo's encoder, or a class that needs no
            vocabulary. None for models that read no text.
    """

    need: Kind
    config: Mapping[str, object]
    tokenizer: Tokenizer | None = None


_PATCHES: Final = {
    "hidden_size": 192,
    "num_hidden_layers": 12,
    "num_attention_heads": 3,
    "intermediate_size": 768,
    "image_size": 64,
    "patch_size": 8,
}
_FRAMES: Final = {
    "hidden_size": 192,
    "num_hidden_layers": 8,
    "num_attention_heads": 3,
    "intermediate_size": 768,
    "conv_dim": [64] * 7,
    "num_conv_pos_embeddings": 32,
    "num_conv_pos_embedding_groups": 8,
}

UNTRAINED: Final = {
    "untrained-t5": Untrained(
        "both",
        {
            "model_type": "t5",
            "vocab_size": 30522,
            "d_model": 256,
            "d_kv": 64,
            "num_heads": 4,
            "d_ff": 512,
            "num_layers": 6,
            "pad_token_id": 0,
            "eos_token_id": 102,
            "decoder_start_token_id": 0,
        },
        "encoder's",
    ),
    "untrained-byt5": Untrained(
        "characters",
        {
            "model_type": "t5",
            "vocab_size": 384,
            "d_model": 256,
            "d_kv": 64,
            "num_heads": 4,
            "d_ff": 512,
            "num_layers": 8,
            "num_decoder_layers": 4,
            "feed_forward_proj": "gated-gelu",
            "tokenizer_class": "ByT5Tokenizer",
            "pad_token_id": 0,
            "eos_token_id": 1,
            "decoder_start_token_id": 0,
        },
        "ByT5Tokenizer",
    ),
    "untrained-canine": Untrained(
        "characters",
        {
            "model_type": "canine",
            "hidden_size": 192,
            "num_hidden_layers": 8,
            "num_attention_heads": 3,
            "intermediate_size": 768,
        },
        "CanineTokenizer",
    ),
    "untrained-vit": Untrained("vision", {"model_type": "vit", **_PATCHES}),
    "untrained-beit": Untrained("vision", {"model_type": "beit", **_PATCHES}),
    "untrained-mit": Untrained(
        "vision",
        {
            "model_type": "segformer",
            "depths": [2, 2, 2, 2],
            "hidden_sizes": [32, 64, 160, 256],
            "num_attention_heads": [1, 2, 5, 8],
        },
    ),
    "untrained-wav2vec2": Untrained("speech", {"model_type": "wav2vec2", **_FRAMES}),
    "untrained-hubert": Untrained("speech", {"model_type": "hubert", **_FRAMES}),
    "untrained-whisper": Untrained(
        "speech",
        {
            "model_type": "whisper",
            "d_model": 192,
            "encoder_layers": 6,
            "encoder_attention_heads": 3,
            "encoder_ffn_dim": 768,
            "decoder_layers": 1,
            "decoder_attention_heads": 3,
            "decoder_ffn_dim": 192,
            "max_source_positions": 50,
            "vocab_size": 96,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        },
    ),
    "untrained-resnet": Untrained(
        "convolution",
        {
            "model_type": "resnet",
            "embedding_size": 32,
            "hidden_sizes": [64, 128, 256],
            "depths": [3, 4, 3],
            "layer_type": "basic",
        },
    ),
    "untrained-convnext": Untrained(
        "convolution",
        {
            "model_type": "convnext",
            "depths": [3, 3, 9, 3],
            "hidden_sizes": [40, 80, 160, 320],
            "image_size": 64,
        },
    ),
}
"""By the name that they have in the store."""


def untrained_source(name: str, runs: Path) -> str:
    """Write the config of an untrained model, and its tokenizer if it reads texts.

    Args:
        name: One of ``UNTRAINED``.
        runs: Folder below which they are written.

    Returns:
        What `actlas ingest` takes.

    Raises:
        MaterialError: If the package of the demo's encoder is not installed.
    """
    model = UNTRAINED[name]
    folder = runs / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(model.config, indent=1))
    if model.tokenizer == "encoder's":
        encoder = materials.encoder_directory()
        for file in _TOKENIZER_FILES:
            shutil.copyfile(encoder / file, folder / file)
    elif model.tokenizer:
        settings = {"tokenizer_class": model.tokenizer}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return f"{RANDOM_PREFIX}{folder}"
