"""``actlas export`` and ``import``: activations for other programs, and from them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from flows.cli.moments import Moment, moment_options
from flows.cli.options import (
    NameList,
    examples,
    json_option,
    layers_filter,
    steps_filter,
    store_option,
)
from flows.console import keep_in_mind, print_json, progress_bar, say

FORMATS: Final = ("zarr", "netcdf", "safetensors", "parquet", "datasets")
"""Those of `store.export`, which a help text must not import."""

_FILE: Final = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)


@click.command(
    short_help="Copy activations into files of other formats.",
    epilog=examples(
        "actlas export plays/tiny-neox --format safetensors --steps 0,64 -o tiny",
        "actlas export plays --format zarr --sites residual --tag paper-v1 -o plays",
    ),
)
@click.argument("what", metavar="CORPUS[/MODEL]")
@click.option(
    "--format", "file_format", type=click.Choice(FORMATS), required=True, help="What to write."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="A new directory, which appears when all of it is written.",
)
@click.option("--sites", type=NameList(), metavar="A,B", help="Only these.  [default: all]")
@steps_filter
@layers_filter
@moment_options
@store_option
@json_option
def export(
    what: str,
    file_format: str,
    output: Path,
    sites: tuple[str, ...] | None,
    steps: tuple[int, ...] | None,
    layers: tuple[int, ...] | None,
    moment: Moment,
    store: str,
    as_json: bool,
) -> None:
    """Copy activations with their labels into files that other programs read.

    zarr: a plain Zarr v3 hierarchy; netcdf: a file a model; safetensors: a file a step, a tensor a
    site and layer; parquet: a file a step, site and layer, a row a token; datasets: a directory a
    site that Hugging Face's datasets.load_from_disk opens, a row a token of a step and layer.
    """
    from store.export import Selection
    from store.export import export as export_selection
    from store.repository import Repository

    repository = Repository.open(store, read_only=True)
    corpus, _, model = what.partition("/")
    models = [model] if model else None
    selection = Selection(repository, moment.find(repository), corpus, models, sites, steps, layers)
    keep_in_mind(f"nothing was written to {output}")
    with progress_bar(f"export {what}", of_bytes=True) as progress:
        written = export_selection(selection, output, format=file_format, tell=progress)
    if as_json:
        print_json({"snapshot": selection.snapshot, "written": [str(path) for path in written]})
        return
    for path in written:
        say(f"Wrote {path}")


@click.command(
    "import",
    short_help="Take in activations that other tools dumped.",
    epilog=examples(
        "actlas import plays/tiny --labels labels.csv",
        "actlas import plays/tiny states.npz --labels labels.csv --tokens tokens.csv",
    ),
)
@click.argument("what", metavar="CORPUS/MODEL")
@click.argument("files", nargs=-1, type=_FILE)
@click.option(
    "--labels",
    "table",
    type=_FILE,
    required=True,
    metavar="TABLE.csv",
    help="A line a tensor: file,tensor,step,site,layer; files lie relative to the table.",
)
@click.option(
    "--tokens",
    "token_file",
    type=_FILE,
    metavar="TABLE.csv",
    help="A line a token: sequence, and any of token_id, position … and row.",
)
@click.option(
    "--causal",
    is_flag=True,
    help="Tokens attend only to earlier ones: the first of a sequence is no content.",
)
@click.option(
    "--allow-nonfinite", is_flag=True, help="Store NaN and infinity, counted, and do not refuse."
)
@store_option
@json_option
def import_(
    what: str,
    files: tuple[Path, ...],
    table: Path,
    token_file: Path | None,
    causal: bool,
    allow_nonfinite: bool,
    store: str,
    as_json: bool,
) -> None:
    """Store tensors of .npy, .npz, .safetensors and .pt files as activations of CORPUS/MODEL.

    With FILES, only what the table says about those. Importing the same again does nothing. A
    CORPUS that is not there is made of the tokens; under one that is, tokens have to be those of
    its sequences, and it is said what could not be compared.
    """
    corpus, _, model = what.partition("/")
    if not (corpus and model):
        raise click.UsageError(f"{what!r} is no CORPUS/MODEL to store under.")
    from store.foreign import import_tensors, labels_of, read_labels, read_tokens
    from store.unused import opened_for

    labels = read_labels(table)
    if files:
        labels = labels_of(labels, files, where=str(table))
    tokens = None if token_file is None else read_tokens(token_file)
    keep_in_mind("steps that were stored whole are kept; the same command goes on from there")
    with opened_for(store) as repository, progress_bar(f"import {what}", of_bytes=True) as progress:
        imported = import_tensors(
            repository,
            corpus=corpus,
            model=model,
            labels=labels,
            tokens=tokens,
            causal=causal,
            allow_nonfinite=allow_nonfinite,
            tell=progress,
        )
    stored = imported.stored
    known = sorted({label.step for label in labels} - set(stored))
    if as_json:
        print_json(
            {"path": what, "stored": stored, "known": known, "unchecked": imported.unchecked}
        )
        return
    steps, were = "step" if len(stored) == 1 else "steps", "was" if len(known) == 1 else "were"
    say(f"{what}: stored {len(stored)} {steps}, {len(known)} {were} there already")
    if imported.unchecked:
        say(imported.unchecked)
    say("Next: actlas compute")
