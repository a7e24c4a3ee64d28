"""``actlas ingest``: run models over a corpus once and keep what they compute."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.cli.capture_options import capture_options
from flows.cli.options import NumberList, examples, json_option, store_option, trust_option
from flows.console import (
    byte_size,
    duration,
    keep_in_mind,
    print_json,
    print_table,
    progress_bar,
    say,
)

if TYPE_CHECKING:
    from flows.capture.checkpoints import Checkpoint, Gap
    from flows.ingestion import IngestResult
    from flows.job import CaptureOptions
    from flows.planning import PlannedStep
    from flows.running import Progress
    from flows.sweep import Sweep


@click.command(
    short_help="Run models over a corpus and store their activations.",
    epilog=examples(
        "actlas ingest models/minilm --corpus plays",
        "actlas ingest runs/tiny --corpus plays --steps 0,64,1000 --plan",
        "actlas ingest random:models/minilm --corpus plays --seed 1",
    ),
)
@click.argument("models", nargs=-1, required=True, metavar="MODEL…")
@click.option("--corpus", required=True, metavar="NAME", help="A corpus added before.")
@click.option(
    "--steps",
    type=NumberList(),
    metavar="0,1,…|all",
    help="Of a folder of checkpoint-N, only these.  [default: all]",
)
@click.option(
    "--steps-table",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Steps of revisions, repositories or folders: a name and its step a line.",
)
@capture_options
@click.option("--name", help="Store the model under this name.  [default: the folder's or Hub id]")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of random: models.")
@click.option(
    "--clean-cache",
    is_flag=True,
    help="Delete what was fetched of a checkpoint once it is stored, unless others share it.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Checkpoints run side by side, each by a process with a GPU of its own.",
)
@click.option(
    "--plan",
    is_flag=True,
    help="Say what would run, how long it takes and whether it fits, by a trial; store nothing.",
)
@click.option(
    "--ignore-space", is_flag=True, help="Run even if the disk cannot hold what will be stored."
)
@trust_option
@store_option
@json_option
def ingest(
    models: tuple[str, ...],
    corpus: str,
    steps: tuple[int, ...] | None,
    steps_table: Path | None,
    options: CaptureOptions,
    name: str | None,
    seed: int,
    clean_cache: bool,
    workers: int,
    plan: bool,
    ignore_space: bool,
    trusted: bool,
    store: str,
    as_json: bool,
) -> None:
    """Run each MODEL over a corpus and store its activations; what is there already is skipped.

    MODEL is a folder of one checkpoint, a folder of checkpoint-N folders, or random:CONFIG for an
    untrained model.
    """
    from flows.capture.checkpoints import find_present
    from flows.capture.errors import UnknownStepError
    from flows.capture.steps import read_steps_table
    from flows.sizes import refuse_what_does_not_fit
    from flows.sweep import Sweep

    if name is not None and len(models) > 1 and steps_table is None:
        raise click.UsageError("--name goes with one MODEL, or with --steps-table.")
    checkpoints: list[Checkpoint] = []
    gaps: list[Gap] = []
    table = {} if steps_table is None else read_steps_table(steps_table)
    for model in models:
        found, absent = find_present(
            model, steps=steps, name=name, seed=seed, table=table, trusted=trusted
        )
        checkpoints += found
        gaps += absent
    if not checkpoints:
        raise UnknownStepError(gaps[0].problem)
    if plan:
        _plan(store, checkpoints, corpus, options, as_json=as_json)
    else:
        if not ignore_space:
            refuse_what_does_not_fit(store, checkpoints, corpus, options)
        sweep = Sweep(store, checkpoints, corpus, options, clean_cache, workers)
        _ingest(sweep, gaps, as_json=as_json)


def _plan(
    store: str,
    checkpoints: Sequence[Checkpoint],
    corpus: str,
    options: CaptureOptions,
    *,
    as_json: bool,
) -> None:
    from flows.planning import plan_ingest
    from store.schema import PROBABILITIES

    plan = plan_ingest(store, checkpoints, corpus, options=options)
    if as_json:
        print_json(
            asdict(plan)
            | {
                "raw_bytes": plan.raw_bytes,
                "stored_bytes": plan.stored_bytes,
                "seconds": plan.seconds,
                "fits": plan.fits,
            }
        )
        return
    print_table(
        ("model", "step", "tokens", "raw", "stored", "chunks", "time", ""),
        [
            (
                step.path,
                str(step.step),
                f"{step.tokens:,}",
                byte_size(step.raw_bytes),
                byte_size(step.stored_bytes),
                f"{step.files:,}",
                duration(step.seconds),
                "; ".join(filter(None, ("stored already" if step.stored else "", _cut(step)))),
            )
            for step in plan.steps
        ],
    )
    if PROBABILITIES in (options.sites or ()):
        click.echo(
            f"{PROBABILITIES} is a value for every head and key of each token, and most of"
            f" {byte_size(plan.raw_bytes)}. --layers, --tokens-per-sequence and shorter sequences"
            " make it less; attention_entropy and its like sum rows up.",
            err=True,
        )
    free = "" if plan.free_bytes is None else f" of {byte_size(plan.free_bytes)} free"
    click.echo(
        f"{len(plan.missing)} of {len(plan.steps)} checkpoints to run, about"
        f" {byte_size(plan.stored_bytes)}{free}: {'it fits' if plan.fits else 'it does not fit'}."
        f" About {duration(plan.seconds)}, by what a part of it took."
    )


def _ingest(sweep: Sweep, gaps: Sequence[Gap], *, as_json: bool) -> None:
    from flows.failures import count_failures
    from flows.sweep import ingest_sweep

    results: list[IngestResult] = []
    failures = [f"\n  {gap.name}: {gap.problem}" for gap in gaps]
    total = len(sweep.checkpoints) + len(gaps)

    def note(rest: str = "") -> None:
        whole = f"{len(results)} of {len(sweep.checkpoints)} checkpoints are stored whole"
        keep_in_mind(f"{whole}{rest}; the same command goes on from there")

    def watched(name: str) -> AbstractContextManager[Progress]:
        note(f", and nothing of {name}")
        return progress_bar(name)

    for outcome in ingest_sweep(sweep, watched):
        if outcome.result is None:
            failures.append(f"\n  {outcome.name}: {outcome.problem}")
            continue
        results.append(outcome.result)
        note()
        if not as_json:
            say(_sentence(outcome.result))
    if as_json:
        print_json([asdict(result) for result in results])
    elif results:
        ran = sum(result.ingested for result in results)
        there = "" if ran == len(results) else f", {len(results) - ran} were there already"
        say(f"{ran} of {total} checkpoints were run{there}.")
    if failures:
        raise click.ClickException(
            count_failures("checkpoints", len(failures), total) + "".join(failures)
        )
    if not as_json:
        say("Next: actlas compute")


def _cut(outcome: IngestResult | PlannedStep) -> str:
    """Say how many sequences lost their ends, nothing where none did."""
    if not outcome.truncated_sequences:
        return ""
    return (
        f"{outcome.truncated_sequences:,} of {outcome.sequences:,} sequences are longer than the"
        " model takes, and are cut"
    )


def _sentence(result: IngestResult) -> str:
    name = f"{result.path} step {result.step}"
    took, held = f", in {duration(result.seconds)}", byte_size(result.stored_bytes)
    holds = f"{', '.join(result.holds)}, {held}"
    if not result.ingested:
        told = f"{name}: stored already, no model was run"
    elif result.added_bytes == result.stored_bytes:
        told = f"{name}: stored {holds}{took}"
    else:
        tokens = [f"{result.added_tokens:,} new tokens"] if result.added_tokens else []
        added = f"{', '.join([*tokens, *result.added])}, {byte_size(result.added_bytes)}"
        told = f"{name}: added {added}{took}; it holds {holds} now"
    return "; ".join(filter(None, (told, _cut(result), result.shares)))
