"""``actlas repair``: damaged steps are computed again and take the place of what was there."""

from __future__ import annotations

from dataclasses import asdict

import click

from flows.cli.options import NumberList, examples, json_option, store_option, trust_option
from flows.cli.verify import print_findings
from flows.console import keep_in_mind, print_json, progress_bar, say


@click.command(
    short_help="Compute damaged steps again.",
    epilog=examples(
        "actlas repair plays/tiny-neox --source runs/tiny-neox",
        "actlas repair plays/tiny-neox --steps 0,64 --json",
    ),
)
@click.argument("what", metavar="CORPUS/MODEL")
@click.option(
    "--steps",
    type=NumberList(),
    metavar="0,1,…|all",
    help="Repair only these, where they need it.  [default: all]",
)
@click.option(
    "--source",
    metavar="MODEL",
    help="Where the checkpoints are.  [default: where they lay, else the recorded id]",
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1 …")
@trust_option
@store_option
@json_option
def repair(
    what: str,
    steps: tuple[int, ...] | None,
    source: str | None,
    device: str,
    trusted: bool,
    store: str,
    as_json: bool,
) -> None:
    """Find damaged steps of a model, compute just those again, and prove that all is whole.

    Only the very weights that a step was stored from are taken. History keeps what was there.
    """
    corpus, _, model = what.partition("/")
    if not (corpus and model):
        raise click.UsageError(f"{what!r} is no CORPUS/MODEL, as `actlas ls` lists them.")
    from flows.repair import repair_model
    from store.repository import Repository

    keep_in_mind("steps that were repaired are whole; the same command goes on from there")
    done = repair_model(
        Repository.open(store),
        corpus,
        model,
        steps=steps,
        source=source,
        device=device,
        trusted=trusted,
        watched=progress_bar,
    )
    if as_json:
        print_json(asdict(done))
    else:
        if done.repaired:
            say(
                f"{what}: computed again: step {', '.join(map(str, done.repaired))}. Metrics of it"
                " are stale: run `actlas compute` again"
            )
        if done.left:
            print_findings(list(done.left))
        else:
            say(f"Every chunk of {what} is as it was written.")
    if done.left:
        raise click.exceptions.Exit(1)
