"""``actlas corpus``: the texts that models are run over."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from flows.cli.options import examples, json_option, store_option
from flows.console import print_json

_FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)


@click.group()
def corpus() -> None:
    """Add the texts that models are run over."""


@corpus.command(
    short_help="Add a corpus of texts or token ids.",
    epilog=examples(
        "actlas corpus add plays --text hamlet.txt macbeth.txt --max-sequences 128",
        "actlas corpus add ids --ids tokens.npy",
    ),
)
@click.argument("name")
@click.argument("files", nargs=-1, type=_FILE)
@click.option("--text", "first_text", type=_FILE, metavar="FILE…", help="UTF-8 text files.")
@click.option("--ids", type=_FILE, metavar="FILE.npy", help="Token ids (sequence, position).")
@click.option(
    "--chunk-chars",
    type=click.IntRange(min=1),
    help="Characters of a sequence.  [default: 512]",
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
    chunk_chars: int | None,
    chunk_tokens: int | None,
    max_sequences: int | None,
    seed: int,
    special_tokens: bool,
    store: str,
    as_json: bool,
) -> None:
    """Add a corpus NAME, cut into sequences. Adding the same again changes nothing."""
    if (first_text is None) == (ids is None):
        raise click.UsageError("Give either --text FILE… or --ids FILE.npy.")
    if ids is not None and (files or chunk_chars or chunk_tokens or max_sequences):
        raise click.UsageError("--ids takes one file, whose rows are the sequences as they stand.")
    if chunk_chars and chunk_tokens:
        raise click.UsageError("Give either --chunk-chars or --chunk-tokens.")
    from flows.corpora import Chunking, add_id_file, add_text_files

    if ids is not None:
        added = add_id_file(store, name, ids)
    else:
        assert first_text is not None
        chunking = (
            Chunking("tokens", chunk_tokens)
            if chunk_tokens
            else Chunking("chars", chunk_chars or 512)
        )
        added = add_text_files(
            store,
            name,
            (first_text, *files),
            chunking=chunking,
            max_sequences=max_sequences,
            seed=seed,
            special_tokens=special_tokens,
        )
    if as_json:
        print_json(asdict(added))
        return
    click.echo(str(added))
    click.echo(f"Next: actlas ingest MODEL --corpus {name}")
