"""What docs/OPERATIONS.md and docs/ARCHITECTURE.md show, one line after another on a small run."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

from flows.capture.training import CheckpointCallback
from store.catalogue import catalogue
from store.repository import Repository
from store.verify import census

sys.path.insert(0, str(Path(__file__).parents[1]))

from documents import ROOT, pieces_of
from newcomer import Newcomer

PROVIDES = {"/stores/": "stores/", "/backup/": "backup/", "/var/lib/node/": "", "9464": "0"}
"""Places on a machine, and a port, instead of which a test has others."""


def documented(document: str, kind: str) -> list[str]:
    pieces = [one for one in pieces_of(__file__) if one.document.startswith(f"docs/{document}.md#")]
    return [piece.text for piece in pieces if piece.kind == kind]


def here(line: str) -> str:
    for theirs, ours in PROVIDES.items():
        line = line.replace(theirs, ours)
    return line


@pytest.fixture
def newcomer(desk: Path, monkeypatch: pytest.MonkeyPatch) -> Newcomer:
    """Return somebody whose store is the one of the documents, with a corpus in it."""
    newcomer = Newcomer(monkeypatch)
    newcomer.types("export ACTLAS_STORE=stores/activations ACTLAS_WATCH_METRICS=average_cosine")
    newcomer.types("actlas corpus add plays --text hamlet.txt --chunk-chars 60 --max-sequences 8")
    return newcomer


def test_the_commands_run_one_after_another(desk: Path, newcomer: Newcomer) -> None:
    lines = [here(line) for line in documented("OPERATIONS", "sh")]
    assert len(lines) == 8
    told = {}
    for line in lines:
        if line.startswith("actlas "):
            told[line] = newcomer.types(line)
        else:
            script, *places = shlex.split(line)
            subprocess.run([sys.executable, ROOT / script, *places], check=True)
    first, *_ = told.values()
    assert "4 held, 4 of them new" in first
    assert "Stopped. The store holds whole checkpoints only." in first
    (model,) = catalogue(Repository.open("stores/activations"))
    # The watch after `gc --yes` finds what was dropped again, as the page says.
    assert [step.step for step in model.steps if step.complete] == [1, 2, 4, 8]
    (copied,) = catalogue(Repository.open("backup/activations"))
    assert [step.step for step in copied.steps] == [8]
    assert census(Repository.open("backup/activations")) == []
    assert "actlas_missing 0" in newcomer.seen["monitor"]
    assert "actlas_newest_step" in (desk / "actlas.prom").read_text()


@pytest.mark.filterwarnings("default:::torch", "default:::transformers")
def test_a_training_script_ingests_as_it_goes(
    desk: Path, newcomer: Newcomer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ellipses of the page stand for what any training script has; here is one."""
    start = desk / "runs" / "my-model" / "checkpoint-1"
    monkeypatch.delenv("PREFECT_API_URL", raising=False)

    def trained(_: object, *, callbacks: list[CheckpointCallback]) -> None:
        rows = [{"input_ids": row, "labels": row} for row in torch.randint(2, 64, (4, 8))]
        arguments = TrainingArguments(
            output_dir="runs/tuned", max_steps=1, save_steps=1, report_to=[], use_cpu=True
        )
        Trainer(
            model=AutoModelForCausalLM.from_pretrained(start),
            args=arguments,
            train_dataset=rows,
            processing_class=AutoTokenizer.from_pretrained(start),
            callbacks=callbacks,
        ).train()

    (desk / "activations").symlink_to(desk / "stores" / "activations")
    (code,) = documented("OPERATIONS", "python")
    exec(code, {"Trainer": trained})
    (model,) = catalogue(Repository.open("stores/activations"))
    assert (model.path, [step.step for step in model.steps]) == ("plays/tuned", [1])


def test_the_nouns_can_be_tried(desk: Path, newcomer: Newcomer) -> None:
    newcomer.types("actlas ingest runs/my-model --corpus plays --steps 1")
    (desk / "demo" / "runs").mkdir(parents=True)
    shutil.move("stores/activations", "demo/activations")
    shutil.move("runs/my-model", "demo/runs/tiny-neox")
    blocks = documented("ARCHITECTURE", "python")
    assert len(blocks) == 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert names["checkpoint"].step == 8
