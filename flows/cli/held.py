"""``actlas ls``: what the store holds."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from flows.cli.moments import Moment, moment_options
from flows.cli.options import (
    examples,
    json_option,
    none_stored,
    store_option,
)
from flows.console import byte_size, print_json, print_table, say

if TYPE_CHECKING:
    from store.catalogue import HeldModel, HeldStep


@click.command(
    short_help="List what the store holds.",
    epilog=examples(
        "actlas ls",
        "actlas ls plays/tiny-neox",
        "actlas ls --tag paper-v1 --json",
    ),
)
@click.argument("what", required=False, metavar="[CORPUS[/MODEL]]")
@moment_options
@store_option
@json_option
def ls(what: str | None, moment: Moment, store: str, as_json: bool) -> None:
    """List what the store holds: models, steps, sites, sizes, completeness and duplicates."""
    from store.catalogue import catalogue
    from store.repository import Repository

    corpus, _, model = (what or "").partition("/")
    repository = Repository.open(store, read_only=True)
    snapshot = moment.find(repository)
    held = catalogue(repository, corpus=corpus or None, model=model or None, snapshot=snapshot)
    if as_json:
        print_json([asdict(item) for item in held])
    elif not held:
        say(none_stored(corpus or None))
    elif model:
        for item in held:
            _print_steps(item)
    else:
        _print_models(held)


def _print_models(held: Sequence[HeldModel]) -> None:
    rows = []
    for item in held:
        complete = [step for step in item.steps if step.complete]
        rows.append(
            (
                item.path,
                _steps([step.step for step in complete]),
                " ".join(item.sites),
                f"{len(item.layers)} × {item.n_tokens:,} × {item.width}",
                byte_size(item.stored_bytes),
                f"{len(complete)} of {len(item.steps)}",
                "; ".join(filter(None, (_notes(complete), _partial(item), _growing(item)))),
            )
        )
    columns = ("model", "steps", "sites", "layer × token × dim", "size", "complete", "notes")
    print_table(columns, rows)
    click.echo(f"{byte_size(sum(item.stored_bytes for item in held))} in all")


def _print_steps(item: HeldModel) -> None:
    from store.messages import site_name

    rows = [
        (
            str(step.step),
            " ".join(
                site_name(site, step.layers.get(site, ()), step.n_blocks) for site in step.sites
            ),
            byte_size(step.stored_bytes),
            "yes" if step.complete else "being written",
            step.revision,
            step.weights_sha256[:12],
            f"{step.source_dtype} → {step.precision}" if step.precision else step.source_dtype,
            "" if math.isnan(step.loss) else f"{step.loss:.3f}",
            step.ingested_at,
            _notes([step]),
        )
        for step in item.steps
    ]
    columns = (
        "step",
        "sites",
        "size",
        "complete",
        "revision",
        "weights",
        "dtype",
        "loss",
        "ingested",
    )
    print_table((*columns, "notes"), rows, title=item.path)
    if _growing(item):
        click.echo(_growing(item))


def _partial(item: HeldModel) -> str:
    """Say which steps hold other sites or layers than the rest, nothing if none does."""
    complete = [step for step in item.steps if step.complete]
    held = {
        step.step: json.dumps([sorted(step.sites), step.layers], sort_keys=True)
        for step in complete
    }
    usual = Counter(held.values()).most_common(1)[0][0] if held else ""
    others = [step for step, own in held.items() if own != usual]
    if not others:
        return ""
    subject = "step {} holds" if len(others) == 1 else "steps {} hold"
    return f"{subject.format(_steps(others))} other sites or layers than the rest"


def _growing(item: HeldModel) -> str:
    """Say which steps keep the tokens from being shown that came later, nothing if none does."""
    if item.n_tokens == item.token_axis:
        return ""
    short = [s.step for s in item.steps if s.complete and s.n_tokens < item.token_axis]
    return (
        f"the corpus grew: {item.n_tokens:,} of {item.token_axis:,} tokens are shown until steps"
        f" {_steps(short)} are ingested again"
    )


def _steps(steps: Sequence[int]) -> str:
    from store.messages import listed

    return listed(steps) or "none"


def _notes(steps: Sequence[HeldStep]) -> str:
    notes = []
    twins = {tuple(sorted((step.step, *step.duplicates))) for step in steps if step.duplicates}
    notes += [f"same weights: {','.join(map(str, group))}" for group in sorted(twins)]
    partly = sorted(step.step for step in steps if step.shared)
    if partly:
        notes.append(f"shares a weight file with another step: {','.join(map(str, partly))}")
    nonfinite = sum(step.nonfinite for step in steps)
    if nonfinite:
        notes.append(f"{nonfinite:,} values not finite")
    return "; ".join(notes)
