"""``actlas diff``: before and after, in one store or two."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.cli.options import (
    FIGURES,
    NameList,
    OutputFile,
    examples,
    json_option,
    population_option,
    store_option,
)
from flows.console import print_json, print_table, say

if TYPE_CHECKING:
    from flows.before_after import Pair, Record


@click.command(
    short_help="Compare results before and after.",
    epilog=examples(
        "actlas diff paper-v1 now",
        "actlas diff before-tuning now average_cosine two_nn -o change.csv -o change.png",
        "actlas diff paper-v1 now --models tiny-neox",
        "actlas diff /data/their-store ./activations --pair bert=my-bert",
    ),
)
@click.argument("before")
@click.argument("after")
@click.argument("metrics", nargs=-1, metavar="[METRIC…]")
@click.option("--corpus", metavar="NAME", help="Only this corpus.")
@click.option(
    "--models",
    type=NameList(),
    metavar="A,B",
    help="Only these models.  [default: every model of both sides]",
)
@click.option(
    "--pair",
    "pairs",
    multiple=True,
    metavar="BEFORE=AFTER",
    help="Compare two models of different names, and no others but --models.",
)
@population_option
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=OutputFile(".csv", *FIGURES),
    metavar="FILE",
    help="Write a table (.csv) or a figure (.png, .pdf, .svg); may be given twice.",
)
@store_option
@json_option
def diff(
    before: str,
    after: str,
    metrics: tuple[str, ...],
    corpus: str | None,
    models: tuple[str, ...] | None,
    pairs: tuple[str, ...],
    population: str,
    outputs: tuple[Path, ...],
    store: str,
    as_json: bool,
) -> None:
    """Compare results BEFORE and AFTER: differences, their errors, and which exceed two of them.

    Each is a tag or a snapshot of the store, `now`, or where another store is, with @TAG after it
    for one of its tags. METRIC is average_cosine and svd_anisotropy unless named.
    """
    from flows.before_after import (
        compare_results,
        difference_records,
        find_side,
        left_out,
        samples_compared,
        tell_differences,
    )
    from flows.difference_figure import draw_differences, write_differences

    sides = find_side(before, store), find_side(after, store)
    chosen_pairs = _pairs(models or (), pairs)
    chosen = metrics or ("average_cosine", "svd_anisotropy")
    compared = {
        metric: compare_results(
            *sides, metric, corpus=corpus, pairs=chosen_pairs, population=population
        )
        for metric in chosen
    }
    records = [
        record | {"before_snapshot": sides[0].snapshot, "after_snapshot": sides[1].snapshot}
        for metric in chosen
        for record in difference_records(metric, compared[metric])
    ]
    for file in outputs:
        if file.suffix.lower() == ".csv":
            write_differences(records, file)
        else:
            draw_differences(compared, (before, after), population, file)
    other_sample = sum(map(left_out, compared.values()))
    told = tell_differences(records, other_sample)
    if as_json:
        print_json(records)
        if other_sample:
            say(told, err=True)
        return
    _print(records)
    click.echo(told)
    for side in sides:
        say(f"{side.name}: snapshot {side.snapshot} of {side.store}")
    for sample in samples_compared(compared):
        say(f"Values of {sample}")
    for file in outputs:
        say(f"Wrote {file}")


def _print(records: list[Record]) -> None:
    columns = [name for name in records[0] if not name.endswith("_snapshot")]
    rows = [
        [
            f"{cell:.4g}" if isinstance(cell := record[name], float) else str(cell)
            for name in columns
        ]
        for record in records
    ]
    print_table(columns, rows)


def _pairs(models: tuple[str, ...], given: tuple[str, ...]) -> list[Pair] | None:
    """Return which models are compared, None for all of one name."""
    from flows.before_after import Pair

    pairs = [Pair(model, model) for model in models]
    for text in given:
        before, equals, after = text.partition("=")
        if not (before and equals and after):
            raise click.UsageError(f"--pair {text}: expected BEFORE=AFTER, the names of two models")
        pairs.append(Pair(before, after))
    return pairs or None
