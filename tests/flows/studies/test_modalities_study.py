"""Pictures, sounds and a model of two stacks, through the same study command."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from flows.cli import actlas
from flows.studies import corpora, preparation, untrained
from flows.studies.sources import ModelSource
from flows.studies.untrained import Untrained

SMALL = {
    "small-vit": Untrained(
        "vision",
        {
            "model_type": "vit",
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 16,
            "image_size": 32,
            "patch_size": 16,
        },
    ),
    "small-convnext": Untrained(
        "convolution",
        {
            "model_type": "convnext",
            "depths": [1, 1],
            "hidden_sizes": [8, 16],
            "num_stages": 2,
            "image_size": 32,
        },
    ),
    "small-hubert": Untrained(
        "speech",
        {
            "model_type": "hubert",
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 16,
            "conv_dim": [8] * 7,
            "num_conv_pos_embeddings": 8,
            "num_conv_pos_embedding_groups": 2,
        },
    ),
    "small-whisper": Untrained(
        "speech",
        {
            "model_type": "whisper",
            "d_model": 16,
            "encoder_layers": 2,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 16,
            "decoder_layers": 1,
            "decoder_attention_heads": 2,
            "decoder_ffn_dim": 16,
            "max_source_positions": 50,
            "vocab_size": 96,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        },
    ),
}
SMALL_READERS = {
    "small-byt5": Untrained(
        "characters",
        {
            "model_type": "t5",
            "vocab_size": 384,
            "d_model": 16,
            "d_kv": 8,
            "num_heads": 2,
            "d_ff": 16,
            "num_layers": 2,
            "pad_token_id": 0,
            "eos_token_id": 1,
            "decoder_start_token_id": 0,
        },
        "ByT5Tokenizer",
    ),
    "small-canine": Untrained(
        "characters",
        {
            "model_type": "canine",
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 16,
        },
        "CanineTokenizer",
    ),
}


@pytest.mark.usefixtures("quick_figures")
def test_models_of_pictures_and_sounds_stand_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = (
        ModelSource("small-vit", "vision", modality="image"),
        ModelSource("small-convnext", "convolution", modality="image"),
        ModelSource("small-hubert", "speech", modality="audio"),
        ModelSource("small-whisper", "speech", modality="audio", stack="encoder"),
    )
    monkeypatch.setitem(preparation.MODEL_SETS, "offline", sources)
    for name, model in SMALL.items():
        monkeypatch.setitem(untrained.UNTRAINED, name, model)
    out = tmp_path / "out"
    arguments = ["study", "modalities", "--store", str(tmp_path / "store"), "-o", str(out)]
    result = CliRunner().invoke(actlas, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    figures = {file.name for file in out.glob("*.svg")}
    assert figures == {"depth-made-pictures.svg", "depth-made-sounds.svg"}
    account = (out / "account.md").read_text()
    assert "small-hubert, over made-sounds: the average cosine lies between" in account
    assert "small-whisper/encoder, over made-sounds: the average cosine" in account
    assert "small-whisper/decoder" not in account
    # 32 pictures of 4 patches and a class token.
    assert "over made-pictures: all 160" in account
    assert "small-convnext" in account
    out = tmp_path / "drift"
    arguments = ["study", "drift", "--store", str(tmp_path / "store"), "-o", str(out)]
    result = CliRunner().invoke(actlas, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    figures = {file.name for file in out.glob("*.svg")}
    assert figures == {
        f"{name}-made-{what}.svg"
        for name in ("depth", "drift-against-cosine")
        for what in ("pictures", "sounds")
    }
    # Three layers: the embeddings and two blocks.
    assert (
        "small-vit: over its 3 layers the norm of the mean row" in (out / "account.md").read_text()
    )


@pytest.mark.usefixtures("quick_figures")
def test_models_of_bytes_and_of_characters_need_no_vocabulary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = tuple(ModelSource(name, "characters") for name in SMALL_READERS)
    monkeypatch.setitem(preparation.MODEL_SETS, "offline", sources)
    for name, model in SMALL_READERS.items():
        monkeypatch.setitem(untrained.UNTRAINED, name, model)
    add_few = corpora.add_play(sequences=8, characters=240)
    monkeypatch.setitem(corpora.CORPORA, corpora.CHARACTER_CORPUS, add_few)
    out = tmp_path / "out"
    arguments = ["study", "characters", "--store", str(tmp_path / "store"), "-o", str(out)]
    result = CliRunner().invoke(actlas, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    account = (out / "account.md").read_text()
    # 8 pieces of 240 characters of an ASCII play: 1,920 bytes, and one end of each piece.
    assert "small-byt5/encoder: its 1,928 tokens have" in account
    # CANINE's blocks see four characters as one; two ends of a piece fill no four.
    assert "small-canine: its 480 tokens have" in account
