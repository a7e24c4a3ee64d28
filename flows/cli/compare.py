"""``actlas compare``: how alike layers, steps or models are, over the same tokens."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.cli.options import (
    FIGURES,
    OutputFile,
    corpus_filter,
    examples,
    json_option,
    layers_filter,
    models_filter,
    steps_filter,
    store_option,
)
from flows.cli.worker_options import dask_option, memory_option
from flows.console import duration, print_json, progress_bar, say

if TYPE_CHECKING:
    from analysis.matrices import Over


@click.command(
    short_help="Compare layers, steps or models with each other.",
    epilog=examples(
        "actlas compare layers --models tiny-neox --steps 512 -o layers.png",
        "actlas compare steps --models tiny-neox --layers 2 --measure procrustes -o steps.png",
        "actlas compare models -o models.png",
    ),
)
@click.argument("over", type=click.Choice(["layers", "steps", "models"]))
@corpus_filter
@models_filter
@steps_filter
@layers_filter
@click.option(
    "--sample",
    type=click.IntRange(min=10),
    default=10_000,
    show_default=True,
    help="Tokens compared.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of that sample.")
@click.option(
    "--measure",
    default="cka",
    show_default=True,
    help="What the figure shows: cka, cka_debiased, procrustes, linear_r2, linear_r2_increment,"
    " neighborhood_overlap or information_imbalance. All of them are computed.",
)
@click.option(
    "-o",
    "--output",
    type=OutputFile(*FIGURES),
    metavar="FILE.png",
    help="The figure to write: .png, .pdf or .svg.",
)
@memory_option
@dask_option
@click.option("--plan", is_flag=True, help="Say what would be computed; compute nothing.")
@store_option
@json_option
def compare(
    over: Over,
    corpus: str | None,
    models: tuple[str, ...] | None,
    steps: tuple[int, ...] | None,
    layers: tuple[int, ...] | None,
    sample: int,
    seed: int,
    measure: str,
    output: Path | None,
    memory: int | None,
    scheduler: str,
    plan: bool,
    store: str,
    as_json: bool,
) -> None:
    """Compare layers, steps or models, pair by pair, over the same tokens of the corpus.

    What is missing or stale is computed and kept beside the metrics, by the names layer_cka,
    step_cka, model_cka and so on. Models are compared at the last of their steps, where their
    tokens end at the same characters.
    """
    from analysis.matrices import check_measure
    from flows.comparison import compare_targets, draw_comparison
    from flows.measurement import MeasureOptions, find_targets
    from store.repository import Repository

    check_measure(measure)
    targets = find_targets(
        Repository.open(store), corpus=corpus, models=models, steps=steps, layers=layers
    )
    options = MeasureOptions(sample=sample, seed=seed, scheduler=scheduler, memory=memory)
    with progress_bar(f"compare {over}") as progress:
        report = compare_targets(
            store, over, targets, options=options, plan=plan, progress=progress
        )
    if output is not None and not plan:
        draw_comparison(store, over, targets, measure, output, options)
    if as_json:
        print_json(asdict(report))
        return
    matrices = "matrix" if report.computed == 1 else "matrices"
    done = f"{matrices} {'to compute' if plan else 'computed'}"
    took = "" if plan or not report.computed else f" in {duration(report.seconds)}"
    click.echo(f"{report.computed:,} {done}{took}, {report.up_to_date:,} up to date")
    if output is not None and not plan:
        say(f"Wrote {output}")
    elif not plan:
        say(f"Next: actlas compare {over} -o FILE.png")
