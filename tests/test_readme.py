"""What the README shows works: its notebook lines and the files it points to."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from flows.capture.checkpoints import find_checkpoints
from flows.corpora import Chunking, add_texts
from flows.demo.materials import encoder_directory, plays
from flows.ingestion import ingest_checkpoint
from flows.measurement import MeasureOptions, find_targets, measure_target
from store.repository import Repository

sys.path.insert(0, str(Path(__file__).parent))

from documents import pieces_of

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SIZES = "hidden_size=16,num_hidden_layers=3,num_attention_heads=2,intermediate_size=32"


def test_the_notebook_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = "demo/activations"
    chunking = Chunking("chars", 100)
    add_texts(store, "hamlet", {"Hamlet": plays()["hamlet"]}, chunking=chunking, max_sequences=12)
    source = f"random:{encoder_directory()}:{SIZES}"
    (checkpoint,) = find_checkpoints(source, name="tiny-neox")
    for step in (0, 512, 1000):
        ingest_checkpoint(store, replace(checkpoint, step=step), "hamlet")
    (target,) = find_targets(Repository.open(store))
    measure_target(store, target, options=MeasureOptions(metrics=("two_nn",), sample=500))
    names: dict[str, object] = {}
    (code,) = (piece.text for piece in pieces_of(__file__))
    assert len(code.strip().splitlines()) <= 13
    exec(code, names)
    assert names["words"].shape[1] == 16
    assert names["everything"].dims == ("model", "step", "layer", "token", "dim")
    assert names["dimension"].dims == ("step",)
    assert names["cosine"].average_cosine.dims == ("step", "layer", "population")


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_pictures_are_light() -> None:
    pictures = list((ROOT / "docs" / "images").iterdir())
    assert pictures
    assert [one.name for one in pictures if one.stat().st_size > 150_000] == []
