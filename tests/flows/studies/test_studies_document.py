"""docs/STUDIES.md: its commands run, and it has every study and picture that there is."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from flows.capture import train
from flows.studies import STUDIES, corpora, preparation, untrained
from flows.studies.sources import ModelSource, Need
from flows.studies.untrained import Untrained

sys.path.insert(0, str(Path(__file__).parents[2]))

from documents import Piece, pieces_of
from newcomer import Newcomer

DOCS = Path(__file__).parents[3] / "docs"
DOCUMENT = (DOCS / "STUDIES.md").read_text()
SMALL = 150_000
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZES |= {"intermediate_size": 16}
TEXTS: dict[str, tuple[Need, dict[str, object]]] = {
    "tiny-bert": ("encoder", {"model_type": "bert", "vocab_size": 64, **SIZES}),
    "tiny-gpt2": (
        "decoder",
        {"model_type": "gpt2", "vocab_size": 64, "n_embd": 16, "n_layer": 2, "n_head": 2},
    ),
}
PICTURES = "untrained-vit"


@pytest.fixture
def tiny_offline(
    tmp_path: Path, run_folder: Path, monkeypatch: pytest.MonkeyPatch, quick_figures: None
) -> None:
    """Make the models of ``--models offline`` tiny, one of each kind that a study needs."""
    tokenizer = run_folder / "checkpoint-0"
    found = []
    for name, (need, config) in TEXTS.items():
        folder = tmp_path / "configs" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config))
        for file in tokenizer.glob("*token*"):
            shutil.copy(file, folder)
        found.append(ModelSource(name, need, (f"random:{folder}",)))
    vit = {"model_type": "vit", "image_size": 32, "patch_size": 16, **SIZES}
    monkeypatch.setitem(untrained.UNTRAINED, PICTURES, Untrained("vision", vit))
    found.append(ModelSource(PICTURES, "vision", modality="image"))
    found.append(ModelSource("neox", "trajectory", (str(run_folder),), steps=(0, 10)))
    monkeypatch.setitem(preparation.MODEL_SETS, "offline", tuple(found))
    monkeypatch.setattr(train, "tiny_model", _tinier)
    # These have tests of their own that carry them out.
    for name in ("shape-of-learning", "characters", "modalities", "untrained-block"):
        monkeypatch.delitem(STUDIES, name)
    # What the figures show is a question of other tests.
    monkeypatch.setattr("flows.studies.run.save_figure", lambda _, file: file.touch())
    for name in (corpora.CORPUS, corpora.SHORT_CORPUS, corpora.CHARACTER_CORPUS):
        monkeypatch.setitem(corpora.CORPORA, name, corpora.add_play(6, 100))


def _tinier(family: str, tokenizer: PreTrainedTokenizerFast, *, length: int) -> PreTrainedModel:
    """Draw what `train-tiny` trains, of 2 blocks of 16 instead of 6 of 128."""
    model_type = {"neox": "gpt_neox", "bert": "bert"}[family]
    sizes = {**SIZES, "vocab_size": len(tokenizer), "max_position_embeddings": length}
    config = AutoConfig.for_model(model_type, **sizes)
    kinds = {"neox": AutoModelForCausalLM, "bert": AutoModelForMaskedLM}
    return kinds[family].from_config(config)


def parts(pieces: list[Piece]) -> list[Piece]:
    """Return the runs of one's own first, which the studies before them are about, too."""
    return sorted(pieces, key=lambda one: "#A training run of one's own" not in one.document)


@pytest.mark.slow(minutes=0.5)
def test_the_commands_run_one_after_another(
    tmp_path: Path, text: str, tiny_offline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("book.txt", "macbeth.txt"):
        Path(name).write_text(text * 10)
    newcomer = Newcomer(monkeypatch)
    for setting in ("STEPS=0,1", "TEXT=book.txt"):
        newcomer.types(f"export ACTLAS_TRAIN_TINY_{setting}")
    newcomer.types("actlas corpus add plays --text book.txt --chunk-chars 60 --max-sequences 6")
    their = tmp_path / "data" / "their-store"
    pieces = pieces_of(__file__)
    assert len(pieces) >= 14
    for piece in parts(pieces):
        if "study training-dynamics" in piece.text:
            newcomer.types("actlas train-tiny runs/mine-seed2 --seed 2")
        if "their-store" in piece.text:
            shutil.copytree("activations", their)
            for store, name in (("activations", "my-tuned-model"), (str(their), "base-model")):
                newcomer.types(
                    f"actlas ingest runs/mine-seed1 --corpus plays --steps 0 --name {name}"
                    f" --store {store}"
                )
                newcomer.types(
                    f"actlas compute average_cosine svd_anisotropy --models {name} --store {store}"
                )
        newcomer.types(piece.text.replace("/data/their-store", str(their)))
    assert len(STUDIES) == 7
    for name in STUDIES:
        assert (tmp_path / "studies" / name / "account.md").exists()
    assert {"change.csv", "change.png", "figures"} <= {path.name for path in tmp_path.iterdir()}


def test_every_study_is_told_of() -> None:
    told = re.findall(r"^\| `([a-z-]+)` \|", DOCUMENT, re.MULTILINE)
    assert set(told) == set(STUDIES)


def test_its_pictures_are_there_and_small() -> None:
    pictures = re.findall(r"\]\((images/[^)]+)\)", DOCUMENT)
    assert all((DOCS / picture).stat().st_size < SMALL for picture in pictures)
