"""Drawn pictures and made sounds, and small configs of the models that take them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image, ImageDraw
from transformers import AutoConfig

PATCHES = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
    "initializer_range": 0.2,
}
WIDE = PATCHES | {"intermediate_size": 48}
STAGES = {"depths": [2, 2, 1, 1], "hidden_sizes": [16, 24, 32, 40]}
TOWERS = {
    "text_config": {
        "vocab_size": 99,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "vision_config": WIDE,
    "projection_dim": 8,
}

IMAGE_MODELS: dict[str, dict[str, object]] = {
    "beit": WIDE,
    "clip": TOWERS,
    "convnext": STAGES | {"image_size": 32},
    "convnextv2": STAGES | {"image_size": 32},
    "deit": WIDE,
    "dinov2": PATCHES,
    "dinov2_with_registers": PATCHES,
    "resnet": {
        "embedding_size": 16,
        "hidden_sizes": [16, 24, 32],
        "depths": [2, 3, 1],
        "layer_type": "basic",
    },
    "segformer": STAGES | {"num_attention_heads": [1, 2, 2, 4]},
    "siglip": TOWERS,
    "swin": {
        "embed_dim": 16,
        "depths": [2, 2],
        "num_heads": [2, 4],
        "image_size": 32,
        "patch_size": 4,
        "window_size": 4,
    },
    "vit": WIDE,
}

# Configs that do not tell the size of images: without these, they are 224 pixels.
SIZES = {
    "resnet": {
        "image_processor_type": "ConvNextImageProcessor",
        "size": {"shortest_edge": 32},
        "crop_pct": 0.875,
    },
    "segformer": {
        "image_processor_type": "SegformerImageProcessor",
        "size": {"height": 32, "width": 32},
    },
}

CONVOLVED = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "conv_dim": [16, 16, 16],
    "conv_kernel": [10, 3, 2],
    "conv_stride": [5, 4, 4],
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 4,
}

AUDIO_MODELS: dict[str, dict[str, object]] = {
    "hubert": CONVOLVED | {"feat_extract_norm": "layer", "do_stable_layer_norm": True},
    "wav2vec2": CONVOLVED,
    "whisper": {
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 1,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "num_mel_bins": 16,
        "max_source_positions": 50,
        "vocab_size": 96,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
    },
}


@pytest.fixture(scope="session")
def media_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Return a function that names a small untrained model of a type."""
    folder = tmp_path_factory.mktemp("configs")

    def source(model_type: str) -> str:
        directory = folder / model_type
        if not directory.exists():
            entries = {**IMAGE_MODELS, **AUDIO_MODELS}[model_type]
            AutoConfig.for_model(model_type, **entries).save_pretrained(directory)
            if model_type in SIZES:
                (directory / "preprocessor_config.json").write_text(json.dumps(SIZES[model_type]))
        return f"random:{directory}"

    return source


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of two discs, two squares, and a disc in no folder, 32 to 42 pixels wide."""
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for label, number in (("disc", 0), ("disc", 1), ("", 2), ("square", 0), ("square", 1)):
        (folder / label).mkdir(exist_ok=True)
        colours = [tuple(int(v) for v in rng.integers(0, 256, 3)) for _ in range(2)]
        image = Image.new("RGB", (32 + int(rng.integers(10)), 32), colours[0])
        draw = ImageDraw.Draw(image)
        shape = draw.rectangle if label == "square" else draw.ellipse
        shape((4, 6, 14 + 5 * number, 26), fill=colours[1])
        image.save(folder / label / f"{number}.png")
    return folder


@pytest.fixture(scope="session")
def noises(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of three sounds at 16 kHz, two of one length, and a stereo one at 8 kHz."""
    folder = tmp_path_factory.mktemp("noises")
    rng = np.random.default_rng(0)
    shapes = {"a": (3000, 16000), "b": (1700, 16000), "c": (3000, 16000), "d": (900, 8000)}
    for name, (samples, rate) in shapes.items():
        size = (samples, 2) if name == "d" else samples
        soundfile.write(folder / f"{name}.wav", rng.normal(0, 0.1, size), rate)
    return folder
