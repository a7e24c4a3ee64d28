"""The demo from texts and checkpoints to two figures, telling what it does as it goes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from analysis.figures import plot_metrics
from flows.capture.checkpoints import find_checkpoints
from flows.console import byte_size, duration, progress_bar
from flows.corpora import Chunking, add_texts
from flows.demo import materials, trajectory
from flows.ingestion import ingest_checkpoint
from flows.measurement import MeasureOptions, find_targets, measure_target
from store.catalogue import catalogue
from store.metrics import open_metrics
from store.repository import Repository
from store.schema import LAYER

PLAY: Final = "hamlet"
TITLE: Final = "Hamlet"
CORPUS: Final = "hamlet"
ENCODER: Final = "MiniLM-L6"
DECODER: Final = "SmolLM2-135M"
SEQUENCES: Final = 64
CHARACTERS: Final = 512
STAGES: Final = 6

METRICS: Final = (
    "average_cosine",
    "svd_anisotropy",
    "participation_ratio",
    "effective_rank",
    "drift_ratio",
    "two_nn",
    "two_nn_mle",
)
SAMPLE: Final = 4096
"""Tokens among which neighbours are sought: enough for a curve, and some seconds a model."""


def run_demo(folder: Path) -> None:
    """Run every stage that is not done yet, and draw the figures.

    Args:
        folder: Where everything goes; it may be deleted at any time.

    Raises:
        MaterialError: If a package that the demo reads is not installed.
    """
    started = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    store = str(folder / "activations")
    plays = dict(materials.plays())
    held_out = plays.pop(PLAY)
    click.echo(f"Everything goes into {folder}/; nothing is downloaded and nothing is sent.")
    _add_corpus(store, held_out)
    ran = _ingest_pretrained(store)
    _train(store, folder, plays, held_out)
    ran += _ingest_trajectory(store, folder)
    computed = _measure(store)
    figures = _draw(store, folder)
    if ran + computed == 0:
        click.echo("\nAll of it was in the store from an earlier run: no model was run.")
    _close(store, figures, time.monotonic() - started)


def _stage(number: int, what: str) -> None:
    click.echo(f"\n[{number}/{STAGES}] {what}")


def _add_corpus(store: str, text: str) -> None:
    _stage(1, f"A corpus: {SEQUENCES} pieces of {CHARACTERS} characters of {TITLE}")
    chunking = Chunking("chars", CHARACTERS)
    click.echo(
        f"  {add_texts(store, CORPUS, {TITLE: text}, chunking=chunking, max_sequences=SEQUENCES)}"
    )


def _ingest_pretrained(store: str) -> int:
    """Run the encoder and the decoder over the corpus; return how many were run."""
    _stage(2, f"Two pretrained models over it: {ENCODER}, an encoder, and {DECODER}, a decoder")
    sources = {ENCODER: materials.encoder_directory(), DECODER: materials.decoder_file()}
    ran = 0
    for name, source in sources.items():
        (checkpoint,) = find_checkpoints(str(source), name=name)
        with progress_bar(f"  {name}") as progress:
            result = ingest_checkpoint(store, checkpoint, CORPUS, progress=progress)
        ran += result.ingested
        done = f"stored in {duration(result.seconds)}" if result.ingested else "was there already"
        size = byte_size(result.stored_bytes)
        click.echo(f"  {name}: {' and '.join(result.sites)}, {size}, {done}")
    return ran


def _train(store: str, folder: Path, plays: Mapping[str, str], held_out: str) -> None:
    _stage(3, f"A GPT-NeoX of 6 blocks, trained here on the {len(plays)} other plays")
    if not _missing_steps(store):
        click.echo("  every step of it is in the store: nothing to train")
        return
    trajectory.train(_run_folder(folder), "\n\n".join(plays.values()), held_out, click.echo)


def _ingest_trajectory(store: str, folder: Path) -> int:
    """Take the training run in through the Prefect flow; return how many steps were run."""
    _stage(4, "Its checkpoints, through the same Prefect flow that a lab schedules")
    missing = _missing_steps(store)
    if not missing:
        click.echo(f"  all {len(trajectory.STEPS)} steps are in the store: no flow to run")
        return 0
    click.echo("  starting Prefect's embedded server (it ends with the demo) …")
    trajectory.ingest_through_flow(store, _run_folder(folder), CORPUS, folder / "prefect")
    return len(missing)


def _measure(store: str) -> int:
    """Compute the metrics of everything in the store; return how many values were missing."""
    _stage(5, f"Metrics of every layer and step: {', '.join(METRICS)}")
    options = MeasureOptions(metrics=METRICS, sample=SAMPLE)
    computed = 0
    for target in find_targets(Repository.open(store), corpus=CORPUS):
        with progress_bar(f"  {target.model.model}") as progress:
            report = measure_target(store, target, options=options, progress=progress)
        computed += report.computed
        done = f"computed in {duration(report.seconds)}" if report.computed else "up to date"
        click.echo(f"  {target.model.model}: {done}")
    return computed


def _draw(store: str, folder: Path) -> dict[Path, str]:
    """Draw both figures; return what each shows."""
    _stage(6, "Two figures, from the store alone")
    depth = folder / "figures" / "depth.png"
    training = folder / "figures" / "training.png"
    depth.parent.mkdir(exist_ok=True)
    plot_metrics(
        open_metrics(store, corpus=CORPUS, models=[ENCODER, DECODER]),
        ["svd_anisotropy", "average_cosine"],
        x="relative_depth",
        population="all",
        title=f"Encoder {ENCODER} and decoder {DECODER}",
        output=depth,
    )
    run = open_metrics(store, corpus=CORPUS, models=[trajectory.MODEL])
    plot_metrics(
        # Layer 0, the embeddings, has no more distinct rows than the vocabulary has tokens.
        run.sel({LAYER: run[LAYER] > 0}),
        ["two_nn", "svd_anisotropy"],
        x="step",
        population="content",
        title="A small GPT-NeoX while it learns",
        output=training,
    )
    return {
        depth: "anisotropy and average cosine by depth, encoder against decoder",
        training: "intrinsic dimension and anisotropy over training steps",
    }


def _missing_steps(store: str) -> list[int]:
    held = catalogue(Repository.open(store), corpus=CORPUS)
    stored = {
        step.step
        for item in held
        if item.model == trajectory.MODEL
        for step in item.steps
        if step.complete
    }
    return [step for step in trajectory.STEPS if step not in stored]


def _run_folder(folder: Path) -> Path:
    return folder / "runs" / trajectory.MODEL


def _close(store: str, figures: Mapping[Path, str], seconds: float) -> None:
    click.echo(f"\nDone in {duration(seconds)}. Look at:")
    for figure, about in figures.items():
        click.echo(f"  {figure}   {about}")
    click.echo(
        f"""
Try next (.venv/bin/actlas --help lists the rest):
  export ACTLAS_STORE={store}
  .venv/bin/actlas ls
  .venv/bin/actlas show two_nn --models {trajectory.MODEL} --layers 6
  .venv/bin/actlas plot svd_anisotropy --population typical --models {DECODER} -o typical.png
  .venv/bin/actlas ingest YOUR_MODEL_FOLDER --corpus {CORPUS} && .venv/bin/actlas compute"""
    )
