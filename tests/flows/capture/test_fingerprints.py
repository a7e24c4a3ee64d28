from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.capture import find_checkpoints, fingerprint
from flows.capture.errors import CheckpointError
from flows.capture.fingerprints import Fingerprint
from flows.capture.weights import LoadedModel


def digest(directory: Path) -> Fingerprint:
    return fingerprint(find_checkpoints(str(directory))[0])


def test_names_and_places_do_not_matter(saved_model: Path) -> None:
    before = digest(saved_model)
    content = (saved_model / "model.safetensors").read_bytes()
    assert before.files == {"model.safetensors": hashlib.sha256(content).hexdigest()}
    line = f"model.safetensors {before.files['model.safetensors']}\n"
    assert before.weights_sha256 == hashlib.sha256(line.encode()).hexdigest()
    assert digest(saved_model.rename(saved_model.parent / "moved")) == before


def test_each_part_is_told_apart(saved_model: Path) -> None:
    before = digest(saved_model)
    config = json.loads((saved_model / "config.json").read_text())
    (saved_model / "config.json").write_text(json.dumps(config | {"transformers_version": "0"}))
    assert digest(saved_model) == before
    (saved_model / "config.json").write_text(json.dumps(config | {"layer_norm_eps": 0.1}))
    changed = digest(saved_model)
    assert changed.config_sha256 != before.config_sha256
    assert changed.weights_sha256 == before.weights_sha256
    tokenizer = (saved_model / "tokenizer.json").read_text()
    (saved_model / "tokenizer.json").write_text(tokenizer + "\n")
    assert digest(saved_model).tokenizer_sha256 != before.tokenizer_sha256
    for file in saved_model.glob("tokenizer*"):
        file.unlink()
    assert digest(saved_model).tokenizer_sha256 is None


def test_truncated_weights_are_named_with_their_sizes(saved_model: Path) -> None:
    file = saved_model / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-100])
    sizes = f"has {len(content) - 100} bytes, its header announces {len(content)}"
    with pytest.raises(CheckpointError, match=rf"model.safetensors is truncated: it {sizes}"):
        digest(saved_model)
    file.write_bytes(content[:50])
    with pytest.raises(CheckpointError, match=r"is truncated: it has 50 bytes, fewer than its"):
        digest(saved_model)
    file.write_bytes(content[:3])
    with pytest.raises(CheckpointError, match=r"is truncated: it has 3 bytes"):
        digest(saved_model)
    file.write_bytes(content[:8] + b"!" + content[9:])
    with pytest.raises(CheckpointError, match="damaged safetensors header"):
        digest(saved_model)
    file.write_bytes(content + b"more")
    with pytest.raises(CheckpointError, match="is too long"):
        digest(saved_model)
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(CheckpointError, match=r"is a Git LFS pointer of 63 bytes.*git lfs pull"):
        digest(saved_model)


def test_shards_are_all_checked(
    saved_model: Path, tmp_path: Path, tiny_model: Callable[..., LoadedModel]
) -> None:
    sharded = tmp_path / "sharded"
    shutil.copytree(saved_model, sharded, ignore=shutil.ignore_patterns("*.safetensors"))
    tiny_model("gpt_neox", head=True).model.save_pretrained(sharded, max_shard_size="20KB")
    names = sorted(file.name for file in sharded.glob("*.safetensors"))
    assert len(names) > 2
    assert sorted(digest(sharded).files) == names
    (sharded / names[1]).unlink()
    with pytest.raises(CheckpointError, match=rf"lacks 1 of {len(names)} shards, {names[1]} first"):
        digest(sharded)
    index = sharded / "model.safetensors.index.json"
    index.write_text("{}")
    with pytest.raises(CheckpointError, match="names no shards: expected a weight_map"):
        digest(sharded)
    index.write_text("{")
    with pytest.raises(CheckpointError, match="is not readable JSON"):
        digest(sharded)


def test_pickles_that_are_no_archives_are_refused(saved_model: Path) -> None:
    (saved_model / "model.safetensors").unlink()
    (saved_model / "pytorch_model.bin").write_bytes(b"\x80\x02half")
    with pytest.raises(CheckpointError, match=r"\(6 bytes\) is not a complete PyTorch archive"):
        digest(saved_model)


def test_untrained_weights_follow_their_seed() -> None:
    source = "random:bert:vocab_size=20,hidden_size=8,num_hidden_layers=1,num_attention_heads=1"
    one, again, two = (fingerprint(find_checkpoints(source, seed=seed)[0]) for seed in (1, 1, 2))
    assert one == again
    assert one.weights_sha256 != two.weights_sha256
    assert one.config_sha256 == two.config_sha256
    assert one.tokenizer_sha256 is None
