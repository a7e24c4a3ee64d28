"""``actlas gc``: activations that are no longer wanted go, and their room is given back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from flows.cli.options import Age, NameList, NumberList, examples, json_option, store_option
from flows.console import (
    byte_size,
    keep_in_mind,
    print_json,
    print_table,
    progress_bar,
    say,
)

if TYPE_CHECKING:
    from store.retention import Dropped, Garbage


@click.command(
    short_help="Drop activations by choice, and delete what nothing needs.",
    epilog=examples(
        "actlas gc",
        "actlas gc --keep-history 30d --yes",
        "actlas gc --model plays/tiny-neox --drop-steps 1,2,4 --keep-history 7d",
        "actlas gc --model plays/tiny-neox --drop-sites query,key --yes",
    ),
)
@click.option("--model", metavar="CORPUS/MODEL", help="The model whose activations are dropped.")
@click.option(
    "--drop-steps", type=NumberList(), metavar="0,1,…|all", help="Drop these of its steps."
)
@click.option(
    "--drop-sites", type=NameList(), metavar="A,B", help="Drop these sites, of --drop-steps or all."
)
@click.option(
    "--keep-history",
    type=Age(),
    metavar="30d|12h",
    help="Forget older snapshots, unless tagged.  [default: all are kept]",
)
@click.option(
    "--margin",
    type=Age(),
    default="1d",
    show_default=True,
    metavar="1d|12h",
    help="Delete nothing younger: longer than the longest ingest of a checkpoint.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would go; so it is without --yes.")
@click.option("--yes", is_flag=True, help="Do it.")
@store_option
@json_option
def gc(
    model: str | None,
    drop_steps: tuple[int, ...] | None,
    drop_sites: tuple[str, ...] | None,
    keep_history: timedelta | None,
    margin: timedelta,
    dry_run: bool,
    yes: bool,
    store: str,
    as_json: bool,
) -> None:
    """Drop activations by choice, and delete what no snapshot refers to. Metrics always stay.

    What is dropped stays readable by --tag and --snapshot, and on the disk, until the history that
    holds it is forgotten (--keep-history). A dropped step is stored again by `watch`, or `ingest`
    without --steps, for as long as they find its checkpoint.
    """
    asked = click.get_current_context().get_parameter_source("drop_steps")
    dropping = drop_sites is not None or asked is click.core.ParameterSource.COMMANDLINE
    if dropping != (model is not None):
        raise click.UsageError("--drop-steps or --drop-sites go with --model CORPUS/MODEL.")
    if dry_run and yes:
        raise click.UsageError("Give either --dry-run or --yes.")
    from store.repository import Repository
    from store.retention import collect_garbage, drop_activations, occupied_bytes, require_margin

    require_margin(margin)
    repository = Repository.open(store)
    keep_in_mind("nothing was dropped or deleted")
    before = occupied_bytes(repository)
    dropped: list[Dropped] = []
    if model is not None:
        with progress_bar(f"gc {model}: looking at what is dropped"):
            dropped = drop_activations(
                repository, model, steps=drop_steps, sites=drop_sites, dry_run=not yes
            )
    if yes:
        gone = f"what was to be dropped of {model} is; " if dropped else ""
        keep_in_mind(f"{gone}garbage that is left goes with the next actlas gc --yes")
    with progress_bar("gc: looking for what nothing needs"):
        garbage = collect_garbage(
            repository, keep_history=keep_history, margin=margin, dry_run=not yes
        )
    after = occupied_bytes(repository)
    if as_json:
        sizes = {"done": yes, "bytes_before": before, "bytes_after": after}
        print_json(sizes | {"dropped": [asdict(one) for one in dropped]} | asdict(garbage))
        return
    _print_dropped(model, dropped, done=yes)
    _print_garbage(garbage, done=yes)
    if not garbage.expired and not garbage.objects:
        click.echo(_why_nothing(garbage, by_age=keep_history is not None))
    if before is not None and after is not None:
        click.echo(f"{store}: {byte_size(before)} before, {byte_size(after)} now")
    if not yes:
        say("Nothing was changed. Repeat with --yes to do it.")


def _print_dropped(model: str | None, dropped: Sequence[Dropped], *, done: bool) -> None:
    if model is None:
        return
    rows = [
        (str(one.step), " ".join(one.sites), " ".join(one.sites_left), byte_size(one.stored_bytes))
        for one in dropped
    ]
    verb = "dropped" if done else "to be dropped"
    print_table(("step", verb, "left", "size"), rows, title=model)
    size = byte_size(sum(one.stored_bytes for one in dropped))
    click.echo(
        f"{size} {verb}; metrics stay, and activations stay in the history until"
        " --keep-history lets go of it"
    )


def _print_garbage(garbage: Garbage, *, done: bool) -> None:
    if done:
        click.echo(
            f"{len(garbage.expired)} snapshots forgotten, {garbage.objects:,} objects of"
            f" {byte_size(garbage.freed_bytes)} deleted"
        )
        return
    more = ", and what only they hold" if garbage.expired else ""
    click.echo(
        f"{len(garbage.expired)} snapshots would be forgotten{more};"
        f" {garbage.objects:,} objects of {byte_size(garbage.freed_bytes)} would be deleted"
    )


def _why_nothing(garbage: Garbage, *, by_age: bool) -> str:
    """Say what keeps all that the store holds."""
    if not by_age:
        return f"All {garbage.kept:,} snapshots keep what is in them: see --keep-history"
    are = "is" if garbage.kept_young == 1 else "are"
    return (
        f"Of {garbage.kept:,} snapshots {garbage.kept_young:,} {are} too young to be forgotten"
        f" (--keep-history, --margin), and tags keep {garbage.kept_tagged:,} others; the first and"
        " the newest always stay"
    )
