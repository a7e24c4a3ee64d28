"""The README's commands for images and sounds, one after another, on small untrained models."""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from PIL import Image

from store import open_metrics, open_store

README = Path(__file__).parents[3] / "README.md"

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


def documented() -> list[str]:
    """Return the lines of the block that begins with pictures."""
    section = README.read_text(encoding="utf-8").partition("## Images and sounds")[2]
    (block,) = re.findall(r"```sh\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    lines = [line.split(" #")[0].strip() for line in block.splitlines()]
    return [line for line in lines if line.startswith("actlas ") and "reviews" not in line]


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
    (tmp_path / "shards").mkdir()
    for number in range(4):
        drawn = io.BytesIO()
        Image.new("RGB", (32, 32), (60 * number, 90, 120)).save(drawn, "JPEG")
        with tarfile.open(tmp_path / "shards" / f"train-{number:03}.tar", "w") as shard:
            member = tarfile.TarInfo("0000.jpg")
            member.size = len(drawn.getvalue())
            shard.addfile(member, io.BytesIO(drawn.getvalue()))
    return tmp_path


def test_the_commands_run_one_after_another(
    desk: Path, runner: Callable[[str], Callable[..., Result]]
) -> None:
    run = runner("activations")
    commands = documented()
    assert len(commands) == 7
    for command in commands:
        run(*shlex.split(command)[1:])
    tree = open_store("activations")
    assert sorted(tree.children) == ["packed", "photos", "words"]
    assert sorted(tree["photos"].children) == ["resnet", "vit"]
    measured = open_metrics("activations", corpus="photos")["average_cosine"]
    assert np.isfinite(measured.sel(model="vit", population="all")).all()
    assert (desk / "photos.png").stat().st_size > 10_000
