"""The README's commands for images and sounds, one after another, on small untrained models."""

from __future__ import annotations

import io
import json
import shutil
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from store import open_metrics, open_store

sys.path.insert(0, str(Path(__file__).parents[2]))

from documents import pieces_of
from newcomer import Newcomer

PROCESSORS = {
    "vit": {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}},
    "wav2vec2": {
        "feature_extractor_type": "Wav2Vec2FeatureExtractor",
        "feature_size": 1,
        "sampling_rate": 16000,
        "padding_value": 0.0,
        "do_normalize": True,
    },
}


def save_model(source: str, folder: Path) -> None:
    """Save an untrained model by the config that ``random:FOLDER`` names, and its processor."""
    import torch
    from transformers import AutoConfig, AutoModel

    configs = Path(source.removeprefix("random:"))
    torch.manual_seed(0)
    AutoModel.from_config(AutoConfig.from_pretrained(configs)).save_pretrained(folder)
    file = "preprocessor_config.json"
    if (configs / file).exists():
        shutil.copy(configs / file, folder)
    else:
        (folder / file).write_text(json.dumps(PROCESSORS[folder.name]))


@pytest.fixture
def desk(
    tmp_path: Path,
    pictures: Path,
    noises: Path,
    media_model: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """Return a folder with what the commands name."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(pictures, tmp_path / "photos")
    shutil.copytree(noises, tmp_path / "words")
    for kind in ("vit", "resnet", "wav2vec2"):
        save_model(media_model(kind), tmp_path / "models" / kind)
    reviews = {"text": ["the cat sat", "a rat ran slowly"], "stars": [5, 1]}
    parquet.write_table(pyarrow.table(reviews), tmp_path / "reviews.parquet")
    (tmp_path / "shards").mkdir()
    for number in range(4):
        drawn = io.BytesIO()
        Image.new("RGB", (32, 32), (60 * number, 90, 120)).save(drawn, "JPEG")
        with tarfile.open(tmp_path / "shards" / f"train-{number:03}.tar", "w") as shard:
            member = tarfile.TarInfo("0000.jpg")
            member.size = len(drawn.getvalue())
            shard.addfile(member, io.BytesIO(drawn.getvalue()))
    return tmp_path


def test_the_commands_run_one_after_another(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newcomer = Newcomer(monkeypatch)
    pieces = pieces_of(__file__)
    assert len(pieces) == 8
    for piece in pieces:
        newcomer.types(piece.text)
    tree = open_store("activations")
    assert sorted(tree.children) == ["packed", "photos", "reviews", "words"]
    assert sorted(tree["photos"].children) == ["resnet", "vit"]
    measured = open_metrics("activations", corpus="photos")["average_cosine"]
    assert np.isfinite(measured.sel(model="vit", population="all")).all()
    assert (desk / "photos.png").stat().st_size > 10_000
