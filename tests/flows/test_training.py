"""Training scripts: checkpoints are ingested or announced as they are saved."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

from flows.capture.training import CheckpointCallback
from flows.measurement import MeasureOptions
from flows.training import ingest_on_save, notify_on_save
from store.catalogue import catalogue
from store.metrics import read_metrics
from store.repository import Repository
from store.verify import census

pytestmark = pytest.mark.filterwarnings("default:::torch", "default:::transformers")


def train(start: Path, output: Path, *callbacks: CheckpointCallback) -> dict[str, torch.Tensor]:
    """Train for four steps, saving at 2 and 4; return the weights."""
    torch.manual_seed(0)
    # Dropout draws from the generator that a callback could disturb.
    model = AutoModelForCausalLM.from_pretrained(start, hidden_dropout=0.2)
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(2, 64, (16, 8))]
    arguments = TrainingArguments(
        output_dir=str(output),
        max_steps=4,
        save_steps=2,
        per_device_train_batch_size=4,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        logging_strategy="no",
        seed=3,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=rows,
        processing_class=AutoTokenizer.from_pretrained(start),
        callbacks=list(callbacks),
    )
    trainer.train()
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_checkpoints_are_ingested_and_training_is_as_without(
    run_folder: Path, store: str, tmp_path: Path
) -> None:
    start = run_folder / "checkpoint-0"
    measure = MeasureOptions(metrics=("average_cosine",), populations=("all",))
    watched = train(start, tmp_path / "watched", ingest_on_save(store, "cats", measure=measure))
    plain = train(start, tmp_path / "plain")
    for name, tensor in plain.items():
        torch.testing.assert_close(watched[name], tensor, rtol=0, atol=0)
    repository = Repository.open(store)
    (model,) = catalogue(repository)
    assert (model.path, [step.step for step in model.steps]) == ("cats/watched", [2, 4])
    assert census(repository) == []
    results = read_metrics(repository, model.path)
    assert results is not None
    assert list(results.step.values) == [2, 4]


def test_training_outlives_what_goes_wrong(
    run_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    nowhere = ingest_on_save(str(tmp_path / "nowhere"), "cats")
    with caplog.at_level(logging.ERROR, "actlas.training"):
        train(run_folder / "checkpoint-0", tmp_path / "run", nowhere, notify_on_save())
    assert len(caplog.records) == 4
    assert "no store at" in caplog.text
    assert "no Prefect server is set" in caplog.text
    assert (tmp_path / "run" / "checkpoint-4" / "model.safetensors").exists()


def test_other_processes_of_a_training_run_do_nothing(tmp_path: Path) -> None:
    from transformers import TrainerControl, TrainerState

    folders: list[Path] = []
    callback = CheckpointCallback(folders.append)
    arguments = TrainingArguments(output_dir=str(tmp_path), report_to=[], use_cpu=True)
    for zero in (False, True):
        state = TrainerState(global_step=7, is_world_process_zero=zero)
        callback.on_save(arguments, state, TrainerControl())
    assert folders == [tmp_path / "checkpoint-7"]
