from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flows.capture import find_checkpoints, fingerprint
from flows.capture.checkpoints import Checkpoint
from flows.capture.errors import CheckpointError
from flows.capture.random_sources import BlockSettings, RandomWeights


def only(source: object) -> Checkpoint:
    found = find_checkpoints(str(source))
    assert len(found) == 1
    return found[0]


@pytest.fixture
def training_run(saved_model: Path) -> Path:
    """Return a folder of checkpoint-2, -9 and -10, with other things beside them."""
    run = saved_model.parent / "run"
    for step in (10, 2, 9):
        shutil.copytree(saved_model, run / f"checkpoint-{step}")
    (run / "checkpoint-notes.txt").write_text("not one")
    (run / "tmp-checkpoint-11").mkdir()
    return run


def test_a_folder_of_one_checkpoint(saved_model: Path) -> None:
    found = only(saved_model)
    assert (found.model, found.step, found.revision) == ("tiny-neox", 0, "tiny-neox")
    assert find_checkpoints(str(saved_model), name="org/other")[0].model == "org/other"


def test_a_training_run_is_sorted_by_number(training_run: Path) -> None:
    found = find_checkpoints(str(training_run))
    assert [checkpoint.step for checkpoint in found] == [2, 9, 10]
    assert {checkpoint.model for checkpoint in found} == {"run"}
    assert found[1].revision == "checkpoint-9"
    some = find_checkpoints(str(training_run), steps=[10, 2])
    assert [checkpoint.step for checkpoint in some] == [2, 10]
    with pytest.raises(CheckpointError, match="has no step 3, 4: it has 2, 9, 10"):
        find_checkpoints(str(training_run), steps=[4, 2, 3])


def test_one_step_of_a_run_keeps_its_number(training_run: Path) -> None:
    found = only(training_run / "checkpoint-9")
    assert (found.model, found.step) == ("run", 9)


def test_the_trainer_state_tells_the_step(saved_model: Path) -> None:
    (saved_model / "trainer_state.json").write_text(json.dumps({"global_step": 640}))
    assert only(saved_model).step == 640


def test_a_half_written_step_does_not_hold_up_the_others(training_run: Path) -> None:
    (training_run / "checkpoint-9" / "model.safetensors").unlink()
    two, nine, _ = find_checkpoints(str(training_run))
    fingerprint(two)
    with pytest.raises(CheckpointError, match=r"checkpoint-9 holds no weights.*being written"):
        fingerprint(nine)


def test_what_holds_no_checkpoint_is_refused(saved_model: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tiny-neoz does not exist; did you mean '.*neox'"):
        find_checkpoints(str(tmp_path / "tiny-neoz"))
    with pytest.raises(CheckpointError, match=r"config.json is a file: expected the folder"):
        find_checkpoints(str(saved_model / "config.json"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="holds no checkpoint: it has no files; expected"):
        find_checkpoints(str(tmp_path / "empty"))
    with pytest.raises(CheckpointError, match="holds no checkpoint: it has empty, tiny-neox"):
        find_checkpoints(str(tmp_path), steps=[0])


def test_weights_without_config_and_config_without_weights_are_refused(saved_model: Path) -> None:
    kept = (saved_model / "config.json").read_text()
    (saved_model / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"holds no config.json"):
        find_checkpoints(str(saved_model))
    (saved_model / "config.json").write_text(kept)
    (saved_model / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"config.json but no weights; .* random:"):
        find_checkpoints(str(saved_model))


def test_gguf_files(tmp_path: Path) -> None:
    (tmp_path / "model.Q4.gguf").write_bytes(b"GGUF....")
    assert only(tmp_path) == Checkpoint(
        str(tmp_path), "model.Q4", 0, "model.Q4.gguf", tmp_path, gguf="model.Q4.gguf"
    )
    assert only(tmp_path / "model.Q4.gguf").model == "model.Q4"
    (tmp_path / "other.gguf").write_bytes(b"no")
    with pytest.raises(CheckpointError, match=r"2 GGUF files, model.Q4.gguf first; name one"):
        find_checkpoints(str(tmp_path))
    with pytest.raises(CheckpointError, match="starts with b'no': expected a GGUF file"):
        fingerprint(only(tmp_path / "other.gguf"))


def test_untrained_models(saved_model: Path) -> None:
    found = only("random:bert:hidden_size=64,hidden_act=relu,tie_word_embeddings=false@7")
    overrides = (("hidden_size", 64), ("hidden_act", "relu"), ("tie_word_embeddings", False))
    assert found.random == RandomWeights("bert", overrides, 7)
    assert (found.model, found.step, found.revision) == ("random-bert", 0, "seed7")
    assert found.directory is None
    assert only("random:bert").random == RandomWeights("bert", (), 0)
    assert find_checkpoints("random:bert", seed=5)[0].random == RandomWeights("bert", (), 5)
    for source in (saved_model, saved_model / "config.json"):
        local = only(f"random:{source}@2")
        assert local.random == RandomWeights(None, (), 2)
        assert (local.model, local.directory) == ("random-tiny-neox", saved_model)


def test_untrained_models_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="'x=' is not an override, expected key=value"):
        find_checkpoints("random:bert:x=")
    with pytest.raises(CheckpointError, match=r"nowhere/at/all is none of these"):
        find_checkpoints("random:nowhere/at/all")
    with pytest.raises(CheckpointError, match=r"holds no config.json"):
        find_checkpoints(f"random:{tmp_path}")


def test_finding_needs_no_torch() -> None:
    code = (
        "import sys; from flows.capture import find_checkpoints; find_checkpoints('random:bert');"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_block_is_told_by_its_settings_and_its_seed() -> None:
    found = only("block:bert:common_bias=0.5,hidden_size=64,query_key_scale=2@3")
    overrides = (("hidden_size", 64), ("num_hidden_layers", 1))
    settings = BlockSettings(common_bias=0.5, query_key_scale=2)
    assert found.random == RandomWeights("bert", overrides, 3, settings)
    assert (found.model, found.step) == ("block-bert-common_bias=0.5-query_key_scale=2", 3)


@pytest.mark.parametrize("setting", ["common_bias=-1", "common_bias=wide", "bias_std=true"])
def test_settings_of_a_block_are_numbers(setting: str) -> None:
    with pytest.raises(CheckpointError, match="expected a number from 0"):
        find_checkpoints(f"block:bert:{setting}")
