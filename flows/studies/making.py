"""The checkpoints of a study's models: found, out of a package, or trained on the spot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flows.capture.checkpoints import Checkpoint, find_checkpoints
from flows.console import progress_bar
from flows.demo import materials
from flows.demo.stages import DECODER, ENCODER, PLAY
from flows.studies.sources import TINY_STEPS, ModelSource, TinyRun
from flows.studies.untrained import UNTRAINED, untrained_source


def checkpoints_of(model: ModelSource, runs: Path, tell: Callable[[str], None]) -> list[Checkpoint]:
    """Find the checkpoints of a model, after training it where it is trained on the spot.

    Args:
        model: The model.
        runs: Folder for training runs.
        tell: Called with what happens.

    Raises:
        CheckpointError: If a source holds no checkpoint.
        MaterialError: If a package of the offline set is not installed.
    """
    sources = model.sources or (_source(model, runs, tell),)
    return [
        checkpoint for source in sources for checkpoint in find_checkpoints(source, name=model.name)
    ]


def _source(model: ModelSource, runs: Path, tell: Callable[[str], None]) -> str:
    if model.name == ENCODER:
        return str(materials.encoder_directory())
    if model.name == DECODER:
        return str(materials.decoder_file())
    if model.name in UNTRAINED:
        return untrained_source(model.name, runs)
    folder = runs / model.name
    if model.run is not None:
        _train(model.run, folder, tell)
    return str(folder)


def _train(run: TinyRun, folder: Path, tell: Callable[[str], None]) -> None:
    if all((folder / f"checkpoint-{step}").is_dir() for step in TINY_STEPS):
        tell(f"  its checkpoints are in {folder} from an earlier run")
        return
    from flows.capture.train import train_tiny

    plays = dict(materials.plays())
    held_out = plays.pop(PLAY)
    with progress_bar(f"train {folder.name}") as updated:
        train_tiny(
            "\n\n".join(plays.values()),
            folder,
            held_out=held_out,
            family=run.family,
            of_bytes=run.of_bytes,
            steps=TINY_STEPS,
            seed=run.seed,
            progress=lambda step, loss: tell(f"  step {step:>4}   held-out loss {loss:.2f} nats"),
            updated=updated,
        )
