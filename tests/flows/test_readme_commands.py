"""The README's commands, one after another as a newcomer types them, on a small training run."""

from __future__ import annotations

import json
import shlex
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from store import open_metrics, open_store

sys.path.insert(0, str(Path(__file__).parents[1]))

from documents import Piece, pieces_of
from newcomer import Newcomer

EXPECTED = {
    "": "",
    "actlas ingest runs/my-model --corpus plays --plan": "step",
    "actlas ingest runs/my-model --corpus plays": "checkpoints",
    "actlas ingest runs/my-model --corpus plays --sites residual,mlp_output": "added mlp_output",
    "actlas show two_nn": "my-model",
    "actlas verify": "is as it was written",
    "actlas verify plays/my-model --replay": "sound",
    "actlas tag": "paper-v1",
    "actlas history": "paper-v1",
    "actlas gc": "--yes",
    "actlas explore": "Stopped; metrics that were computed here are in the store.",
    "actlas doctor": "torch",
    "actlas compute --populations": "values computed",
    "actlas completion bash": "_ACTLAS_COMPLETE=bash_complete",
    "actlas --help": "corpus add plays --text hamlet.txt",
}
"""What is printed for commands that begin so; the longest beginning counts."""


@pytest.fixture
def desk(desk: Path) -> Path:
    """Return the folder with what another tool dumped beside the texts and the run."""
    states = np.random.default_rng(0).standard_normal((3, 6, 4), dtype=np.float32)
    np.save(desk / "states.npy", states)
    (desk / "labels.csv").write_text("file,step\nstates.npy,0\n")
    (desk / "tokens.csv").write_text("sequence\n" + "".join(f"{n // 3}\n" for n in range(6)))
    return desk


def expected_of(command: str) -> str:
    beginnings = [one for one in EXPECTED if command.startswith(one)]
    return EXPECTED[max(beginnings, key=len)]


def in_order(pieces: list[Piece]) -> list[Piece]:
    """Return them with what sentences say between blocks behind the blocks: it names tags."""
    return sorted(pieces, key=lambda piece: piece.kind == "inline")


@pytest.mark.slow(minutes=2.5)
def test_the_commands_run_one_after_another(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newcomer = Newcomer(monkeypatch)
    newcomer.types("export ACTLAS_COMPUTE_SAMPLE=120")  # tokens among which neighbours are sought
    pieces = [piece for piece in pieces_of(__file__) if piece.kind != "transcript"]
    assert len(pieces) >= 30
    for piece in in_order(pieces):
        assert expected_of(piece.text) in newcomer.types(piece.text), piece
    assert "<title>" in newcomer.seen["explore"]
    tree = open_store("activations")
    assert sorted(tree["plays"].children) == ["my-model", "other-tool", "thin"]
    whole = tree["plays/my-model"]
    assert whole["step"].values.tolist() == [1, 2, 4, 8]
    sites = {"residual", "mlp_output", "query", "key", "attention_entropy"}
    assert sites <= set(whole.data_vars)
    assert np.isfinite(whole["residual"].sel(step=8).values).all()
    measured = open_metrics("activations", corpus="plays")
    dimension = measured["two_nn"].sel(model="my-model", population="content", step=[1, 2, 4, 8])
    assert np.isfinite(dimension.sel(layer=slice(1, None))).all()
    assert {"cosine.png", "cka.png", "report.html", "tensors"} <= {p.name for p in desk.iterdir()}


def test_what_goes_wrong_is_told_as_shown(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newcomer = Newcomer(monkeypatch)
    newcomer.types("export ACTLAS_STORE=demo/activations")
    newcomer.types("actlas corpus add hamlet --text hamlet.txt --max-sequences 2")
    (desk / "runs" / "my-model").rename(desk / "runs" / "tiny")
    checkpoint = desk / "runs" / "tiny" / "checkpoint-1"
    shown = [piece for piece in pieces_of(__file__) if piece.kind == "transcript"]
    assert len(shown) == 2
    damaged = Path(shlex.split(shown[1].text)[2])
    checkpoint.rename(damaged)
    _truncate(damaged / "model.safetensors", kept=4096, announced=5_320_408)
    for piece in shown:
        told = newcomer.types(piece.text, code=2 if "hamlt" in piece.text else 1)
        assert told.replace(str(desk), "/home/me") == piece.answer


def _truncate(file: Path, *, kept: int, announced: int) -> None:
    """Leave the beginning of a file of weights whose header announces so many bytes."""
    header = b""
    for _ in range(2):  # the header says how long it is itself, in as many digits
        size = announced - 8 - len(header)
        entry = {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}
        header = json.dumps({"embed": entry}).encode()
    file.write_bytes((struct.pack("<Q", len(header)) + header).ljust(kept, b"\0"))
