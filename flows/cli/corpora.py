"""``actlas corpus``: the texts, images and sounds that models are run over."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.cli.options import examples, json_option, store_option
from flows.console import keep_in_mind, print_json, progress_bar, say

if TYPE_CHECKING:
    from flows.added_corpus import AddedCorpus
    from flows.corpora import Chunking

_FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
_FOLDER = click.Path(exists=True, file_okay=False, readable=True, path_type=Path)


class _DataSet(click.Path):
    """A path that is there, or a pattern of shards, whose parts are looked for later."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Path:
        """Return the path."""
        from flows.shards import is_pattern

        pattern = Path(value)
        if is_pattern(pattern):
            return pattern
        return Path(os.fsdecode(super().convert(value, param, ctx)))


_DATASET = _DataSet(exists=True, readable=True)

_LISTED = 10
"""Skipped files that are named, before they are only counted."""


@click.group()
def corpus() -> None:
    """Add the texts, images and sounds that models are run over."""


@corpus.command(
    short_help="Add a corpus of texts, token ids, images or sounds.",
    epilog=examples(
        "actlas corpus add plays --text hamlet.txt macbeth.txt --max-sequences 128",
        "actlas corpus add ids --ids tokens.npy",
        "actlas corpus add pictures --images photos/",
        "actlas corpus add reviews --dataset reviews.parquet --column text --label-column stars",
        "actlas corpus add photos --dataset 'shards/train-{000..003}.tar' --column jpg",
    ),
)
@click.argument("name")
@click.argument("files", nargs=-1, type=_FILE)
@click.option("--text", "first_text", type=_FILE, metavar="FILE…", help="UTF-8 text files.")
@click.option("--ids", type=_FILE, metavar="FILE.npy", help="Token ids (sequence, position).")
@click.option("--images", type=_FOLDER, metavar="DIR", help="Image files; folders are labels.")
@click.option("--audio", type=_FOLDER, metavar="DIR", help="Sound files; folders are labels.")
@click.option(
    "--dataset",
    type=_DATASET,
    metavar="PATH",
    help="A data set: a folder of save_to_disk, Parquet, JSON, or WebDataset shards (.tar).",
)
@click.option(
    "--column",
    help="Its column of texts, images or sounds, where it has several; of shards, an extension.",
)
@click.option(
    "--label-column",
    help="Its column of labels; of shards, an extension, or a key of .json.  [default for shards:"
    " cls, or label]",
)
@click.option("--split", help="Its split, where it has several.")
@click.option(
    "--strict",
    is_flag=True,
    help="Refuse damaged images and sounds and blank texts; do not skip them.",
)
@click.option(
    "--chunk-chars",
    type=click.IntRange(min=1),
    help="Characters of a sequence.  [default: 512; a row of a data set is one sequence]",
)
@click.option(
    "--chunk-tokens",
    type=click.IntRange(min=2),
    help="Tokens of a sequence, instead of characters.",
)
@click.option("--max-sequences", type=click.IntRange(min=1), help="Draw at most so many sequences.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of that draw.")
@click.option(
    "--special-tokens/--no-special-tokens",
    default=True,
    show_default=True,
    help="Let tokenizers add theirs (BOS, CLS, SEP …); they are stored and marked.",
)
@store_option
@json_option
def add(
    name: str,
    files: tuple[Path, ...],
    first_text: Path | None,
    ids: Path | None,
    images: Path | None,
    audio: Path | None,
    dataset: Path | None,
    column: str | None,
    label_column: str | None,
    split: str | None,
    strict: bool,
    chunk_chars: int | None,
    chunk_tokens: int | None,
    max_sequences: int | None,
    seed: int,
    special_tokens: bool,
    store: str,
    as_json: bool,
) -> None:
    """Add a corpus NAME of sequences, images or sounds. Adding the same again changes nothing."""
    sources = (first_text, ids, images, audio, dataset)
    if sum(source is not None for source in sources) != 1:
        raise click.UsageError(
            "Give one of --text FILE…, --ids FILE.npy, --images DIR, --audio DIR, --dataset PATH."
        )
    if ids is not None and (files or chunk_chars or chunk_tokens or max_sequences):
        raise click.UsageError("--ids takes one file, whose rows are the sequences as they stand.")
    if chunk_chars and chunk_tokens:
        raise click.UsageError("Give either --chunk-chars or --chunk-tokens.")
    if files and first_text is None:
        raise click.UsageError("Only --text takes several files; quote a pattern of shards.")
    if (images or audio) and (chunk_chars or chunk_tokens):
        raise click.UsageError("Images and sounds are sequences as they are: leave --chunk-… out.")
    if dataset is None and (column or label_column or split):
        raise click.UsageError("--column, --label-column and --split go with --dataset.")
    if strict and not (images or audio or dataset):
        raise click.UsageError("--strict goes with --images, --audio or --dataset.")
    chunking = _chunking(chunk_chars, chunk_tokens, whole=dataset is not None)
    keep_in_mind("a corpus is added whole or not at all")
    with progress_bar(f"corpus {name}") as progress:
        if dataset is not None:
            from flows.dataset_corpora import Columns, add_dataset
            from flows.shard_corpora import add_shards
            from flows.shards import are_shards

            added = (add_shards if are_shards(dataset) else add_dataset)(
                store,
                name,
                dataset,
                Columns(column, label_column, split),
                chunking=chunking,
                max_sequences=max_sequences,
                seed=seed,
                special_tokens=special_tokens,
                strict=strict,
                progress=progress,
            )
        elif ids is not None:
            from flows.corpora import add_id_file

            added = add_id_file(store, name, ids)
        elif first_text is not None:
            from flows.corpora import add_text_files

            added = add_text_files(
                store,
                name,
                (first_text, *files),
                chunking=chunking,
                max_sequences=max_sequences,
                seed=seed,
                special_tokens=special_tokens,
            )
        else:
            from flows.item_corpora import add_folder

            folder, modality = (images, "image") if images is not None else (audio, "audio")
            assert folder is not None
            added = add_folder(
                *(store, name, modality, folder),
                max_items=max_sequences,
                seed=seed,
                strict=strict,
                progress=progress,
            )
    if as_json:
        print_json(asdict(added))
    else:
        _tell(added)


def _chunking(chars: int | None, tokens: int | None, *, whole: bool) -> Chunking:
    from flows.corpora import Chunking

    if tokens:
        return Chunking("tokens", tokens)
    return Chunking("whole") if whole and chars is None else Chunking("chars", chars or 512)


def _tell(added: AddedCorpus) -> None:
    say(str(added))
    if added.skipped:
        click.echo(f"Skipped {len(added.skipped):,}:", err=True)
        for skipped in added.skipped[:_LISTED]:
            click.echo(f"  {skipped.name}: {skipped.reason}", err=True)
        if len(added.skipped) > _LISTED:
            click.echo(f"  … and {len(added.skipped) - _LISTED:,} more", err=True)
    say(f"Next: actlas ingest MODEL --corpus {added.name}")
