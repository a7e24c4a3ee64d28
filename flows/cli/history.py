"""``actlas history`` and ``actlas tag``: the past of a store, and names for what must stay."""

from __future__ import annotations

from dataclasses import asdict

import click

from flows.cli.options import examples, json_option, store_option
from flows.console import is_verbose, print_json, print_table, say


@click.command(
    short_help="List the snapshots of the store.",
    epilog=examples("actlas history", "actlas history --limit 0 --json"),
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="The newest so many; 0 for all.",
)
@store_option
@json_option
def history(limit: int, store: str, as_json: bool) -> None:
    """List the snapshots of the store, the newest first: when, what was done, and tags.

    Those of writers that reserve a step, keep it or give it up are left out, unless they have a
    tag; --verbose and --json show them.
    Any of them can be read as it was: `ls`, `show`, `plot` and `export` take --snapshot, --tag and
    --as-of.
    """
    from store import history as past
    from store.repository import Repository

    found = past.history(Repository.open(store, read_only=True))
    if not (as_json or is_verbose()):
        found = [one for one in found if one.tags or not one.bookkeeping]
    shown = found[:limit] if limit else found
    if as_json:
        print_json([asdict(one) | {"written_at": one.written_at.isoformat()} for one in shown])
        return
    print_table(
        ("snapshot", "written (UTC)", "tags", "what"),
        [(one.id, f"{one.written_at:%F %T}", " ".join(one.tags), one.message) for one in shown],
    )
    if len(shown) < len(found):
        say(f"{len(found) - len(shown)} older ones: actlas history --limit 0")


@click.command(
    short_help="Give a snapshot a name, or list names.",
    epilog=examples(
        "actlas tag paper-v1",
        "actlas tag paper-v1 --snapshot 2BD2Q4WVR2A12Y7Q8QSG",
        "actlas tag",
    ),
)
@click.argument("name", required=False)
@click.option(
    "--snapshot", metavar="ID", help="A snapshot of `actlas history`.  [default: the newest]"
)
@store_option
@json_option
def tag(name: str | None, snapshot: str | None, store: str, as_json: bool) -> None:
    """Name a snapshot NAME for good, or list the names there are.

    A tag is never moved, and `actlas gc` keeps what it names.
    """
    from store.history import create_tag, tags
    from store.repository import Repository

    if name is None:
        if snapshot is not None:
            raise click.UsageError("--snapshot goes with a NAME to give.")
        known = tags(Repository.open(store, read_only=True))
        if as_json:
            print_json(known)
        elif known:
            print_table(("tag", "snapshot"), list(known.items()))
        else:
            say("There are no tags yet: actlas tag NAME")
        return
    target = create_tag(Repository.open(store), name, snapshot)
    if as_json:
        print_json({name: target})
    else:
        say(f"{name} stands for snapshot {target}")
