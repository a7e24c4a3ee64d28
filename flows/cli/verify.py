"""``actlas verify``: whether what is stored is what was written, and what the model gives."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from flows.cli.options import NumberList, examples, json_option, store_option, trust_option
from flows.console import keep_in_mind, print_json, print_table, progress_bar, say

if TYPE_CHECKING:
    from flows.replay import Replayed
    from store.repository import Repository
    from store.verify import Finding


@click.command(
    short_help="Check that what is stored is whole, and the model's.",
    epilog=examples(
        "actlas verify",
        "actlas verify plays/tiny-neox --json",
        "actlas verify plays/tiny-neox --replay 8 --source runs/tiny-neox",
    ),
)
@click.argument("what", required=False, metavar="[CORPUS[/MODEL]]")
@click.option(
    "--census",
    is_flag=True,
    help="Read every chunk and compare it with the checksum recorded for it; the default.",
)
@click.option(
    "--replay",
    type=click.IntRange(min=1),
    metavar="N",
    help="Run N random sequences again, one by one, and compare all sites and layers.",
)
@click.option(
    "--source",
    metavar="MODEL",
    help="Where the checkpoints are.  [default: where they lay, else the recorded id]",
)
@click.option(
    "--steps", type=NumberList(), metavar="0,1,…|all", help="Replay only these.  [default: all]"
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the N sequences.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1 …")
@trust_option
@store_option
@json_option
def verify(
    what: str | None,
    census: bool,
    replay: int | None,
    source: str | None,
    steps: tuple[int, ...] | None,
    seed: int,
    device: str,
    trusted: bool,
    store: str,
    as_json: bool,
) -> None:
    """Check that no chunk is missing or damaged, or that rows are the model's; fail otherwise.

    A replay needs the very checkpoint that a step was stored from: its digests are compared first.
    """
    if census and replay:
        raise click.UsageError("Give either --census or --replay N.")
    if replay is None and (source is not None or steps is not None):
        raise click.UsageError("--source and --steps go with --replay N.")
    from store.repository import Repository

    repository = Repository.open(store, read_only=True)
    keep_in_mind("the store was read, and nothing in it changed")
    if replay is None:
        sound = _census(repository, what, as_json=as_json)
    else:
        sound = _replay(
            *(repository, what, replay, source, steps),
            seed=seed,
            device=device,
            trusted=trusted,
            as_json=as_json,
        )
    if not sound:
        raise click.exceptions.Exit(1)


def _census(repository: Repository, what: str | None, *, as_json: bool) -> bool:
    from store.verify import census

    layers = 0

    with progress_bar("verify") as progress:

        def note(done: int, total: int) -> None:
            nonlocal layers
            layers = done
            progress(1, total)

        findings = census(repository, what, progress=note)
    if as_json:
        print_json([asdict(finding) for finding in findings])
    elif findings:
        print_findings(findings)
    elif layers:
        say(f"Every chunk of {what or repository.uri} is as it was written ({layers:,} layers).")
    else:
        say(f"No step is stored in {what or repository.uri}, so there is nothing to check.")
    return not findings


def print_findings(findings: list[Finding]) -> None:
    """Write a table of what a census found."""
    print_table(("what", "model", "site", "step", "layer", "detail"), list(map(_row, findings)))


def _row(finding: Finding) -> tuple[str, ...]:
    where = ("" if number is None else str(number) for number in (finding.step, finding.layer))
    return (finding.kind, finding.path, finding.site, *where, finding.detail)


def _replay(
    repository: Repository,
    what: str | None,
    count: int,
    source: str | None,
    steps: tuple[int, ...] | None,
    *,
    seed: int,
    device: str,
    trusted: bool,
    as_json: bool,
) -> bool:
    from flows.replay import replay_model
    from store.catalogue import catalogue

    corpus, _, model = (what or "").partition("/")
    held = catalogue(repository, corpus=corpus or None, model=model or None)
    if len({item.model for item in held}) > 1 and (source is not None or steps is not None):
        raise click.UsageError("--source and --steps go with one model: give CORPUS/MODEL.")
    replayed: list[Replayed] = []
    for item in held:
        with progress_bar(f"replay {item.path}") as progress:
            replayed += replay_model(
                repository,
                item,
                count=count,
                steps=steps,
                source=source,
                seed=seed,
                device=device,
                trusted=trusted,
                progress=progress,
            )
    if as_json:
        print_json([asdict(one) | {"sound": one.sound} for one in replayed])
    else:
        _print_replayed(replayed)
    return all(one.sound for one in replayed)


def _print_replayed(replayed: list[Replayed]) -> None:
    if not replayed:
        say("No step is stored, so there is nothing to run again.")
        return
    columns = ("model", "step", "dtype", "sequences", "worst row", "off by", "allowed", "")
    print_table(columns, list(map(_replayed_row, replayed)))


def _replayed_row(one: Replayed) -> tuple[str, ...]:
    worst = one.worst
    place, off = "", ""
    if worst is not None:
        depth = "" if worst.layer is None else f" layer {worst.layer}"
        place = f"{worst.site}{depth}, sequence {worst.sequence}, position {worst.position}"
        off = f"{worst.deviation:.1e}"
    verdict = "sound" if one.sound else one.problem or "NOT WHAT THE MODEL GIVES"
    number = str(len(one.sequences))
    return (one.path, str(one.step), one.dtype, number, place, off, f"{one.tolerance:.0e}", verdict)
