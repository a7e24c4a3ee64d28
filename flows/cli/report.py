"""``actlas report``: what the store holds and what was measured, as one page to hand on."""

from __future__ import annotations

from pathlib import Path

import click

from flows.cli.options import (
    OutputFile,
    corpus_filter,
    examples,
    json_option,
    models_filter,
    store_option,
)
from flows.console import keep_in_mind, print_json, progress_bar, say


@click.command(
    short_help="Write one page to look at and to send.",
    epilog=examples(
        "actlas report -o report.html",
        "actlas report --corpus plays --models tiny-neox -o tiny.html",
    ),
)
@click.option(
    "-o",
    "--output",
    type=OutputFile(".html", ".htm"),
    default=Path("report.html"),
    show_default=True,
    metavar="FILE.html",
    help="The page to write.",
)
@corpus_filter
@models_filter
@store_option
@json_option
def report(
    output: Path, corpus: str | None, models: tuple[str, ...] | None, store: str, as_json: bool
) -> None:
    """Write one page that opens in a browser without a network, to look at and to send.

    It holds the figures of every computed metric by layer and over training, what the store
    holds, warnings, definitions, and the numbers to download.
    """
    from analysis.report import write_report

    keep_in_mind(f"{output} is as it was before")
    with progress_bar("report: models read") as progress:
        written = write_report(store, output, corpus=corpus, models=models, tell=progress)
    if as_json:
        print_json({"written": str(written)})
        return
    say(f"Wrote {written}: open it in a browser")
