"""Untrained models of kinds of which no trained one can be had without a network."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flows.capture.random_sources import RANDOM_PREFIX
from flows.demo import materials

_TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


@dataclass(frozen=True)
class Untrained:
    """An untrained model.

    Attributes:
        config: Its config.
        tokenizer: Class of its tokenizer in `transformers`, one that needs no vocabulary; None for
            the tokenizer of the demo's encoder.
    """

    config: Mapping[str, object]
    tokenizer: str | None = None


_T5: Final = {"d_model": 256, "d_kv": 64, "num_heads": 4, "d_ff": 512, "num_layers": 6}

UNTRAINED: Final = {
    "untrained-t5": Untrained(
        {
            "model_type": "t5",
            "vocab_size": 30522,
            "pad_token_id": 0,
            "eos_token_id": 102,
            "decoder_start_token_id": 0,
            **_T5,
        }
    ),
}
"""By the name that they have in the store."""


def untrained_source(name: str, runs: Path) -> str:
    """Write the config and the tokenizer of an untrained model, and return its source.

    Args:
        name: One of ``UNTRAINED``.
        runs: Folder below which they are written.

    Raises:
        MaterialError: If the package of the demo's encoder is not installed.
    """
    model = UNTRAINED[name]
    folder = runs / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(model.config, indent=1))
    if model.tokenizer is not None:
        about = {"tokenizer_class": model.tokenizer}
        (folder / "tokenizer_config.json").write_text(json.dumps(about))
        return f"{RANDOM_PREFIX}{folder}"
    encoder = materials.encoder_directory()
    for file in _TOKENIZER_FILES:
        if (encoder / file).is_file():
            shutil.copyfile(encoder / file, folder / file)
    return f"{RANDOM_PREFIX}{folder}"
