"""``actlas train-tiny``: a training run of one's own, made in minutes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.cli.options import NumberList, examples, json_option
from flows.console import keep_in_mind, print_json, progress_bar, say

if TYPE_CHECKING:
    from flows.capture.tiny_models import Family

_FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
_HELD_OUT = 10
"""One part of so many of the text, its end, is held out."""


@click.command(
    name="train-tiny",
    short_help="Train a small model, for its checkpoints.",
    epilog=examples(
        "actlas train-tiny runs/tiny --text macbeth.txt",
        "actlas train-tiny runs/bert --family bert",
        "actlas train-tiny runs/mine-seed1 --text plays.txt --seed 1 --steps 0,1,2,4,8,16,32,64",
    ),
)
@click.argument("directory", type=click.Path(file_okay=False, writable=True, path_type=Path))
@click.option("--text", type=_FILE, help="A UTF-8 text to learn.  [default: the plays of the demo]")
@click.option(
    "--family",
    type=click.Choice(["neox", "bert"]),
    default="neox",
    show_default=True,
    help="A decoder that predicts the next token, or an encoder that fills in hidden ones.",
)
@click.option("--bytes", "of_bytes", is_flag=True, help="Let it read bytes, not pieces of words.")
@click.option(
    "--steps",
    type=NumberList(),
    default="0,1,2,4,8,16,32,64,128,256,512,1000",
    show_default=True,
    metavar="0,1,…",
    help="Steps at which a checkpoint is kept; the largest is the last.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of weights and batches.")
@json_option
def train_tiny(
    directory: Path,
    text: Path | None,
    family: Family,
    of_bytes: bool,
    steps: tuple[int, ...] | None,
    seed: int,
    as_json: bool,
) -> None:
    """Train a GPT-NeoX or a BERT of 6 blocks of 128 into DIRECTORY, a few minutes of CPU.

    Each kept step becomes a folder checkpoint-N with its tokenizer, which `actlas ingest` takes.
    Runs whose folders end in -seedN are taken for one run with several seeds by the studies.
    """
    if steps is None:
        raise click.UsageError("--steps takes numbers: training has to end somewhere.")
    from flows.capture.train import train_tiny as train

    keep_in_mind(f"the checkpoints in {directory} are whole; training begins anew")
    learnt, held_out = _texts(text)
    with progress_bar(f"train {directory.name}") as updated:
        kept = train(
            learnt,
            directory,
            held_out=held_out,
            family=family,
            of_bytes=of_bytes,
            steps=steps,
            seed=seed,
            progress=lambda step, loss: say(
                f"step {step}: held-out loss {loss:.2f} nats a token", err=as_json
            ),
            updated=updated,
        )
    if as_json:
        print_json([{"step": k.step, "loss": k.loss, "directory": str(k.directory)} for k in kept])
        return
    say(f"Next: actlas ingest {directory} --corpus NAME")


def _texts(file: Path | None) -> tuple[str, str]:
    """Return the text to learn and the text held out."""
    if file is None:
        from flows.demo.materials import MaterialError, plays

        try:
            texts = dict(plays())
        except MaterialError as error:
            raise MaterialError(f"{error}; or let it learn a text of yours: --text FILE") from error
        held_out = texts.pop("hamlet")
        return "\n\n".join(texts.values()), held_out
    from flows.capture.errors import InputError

    try:
        text = file.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text: byte {error.start} is in the way") from error
    cut = len(text) - len(text) // _HELD_OUT
    return text[:cut], text[cut:]
