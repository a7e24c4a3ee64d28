"""``actlas watch``: store and measure checkpoints as they appear."""

from __future__ import annotations

import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.cli.options import Age, examples
from flows.cli.watch_options import watch_options
from flows.console import duration, is_quiet, say

if TYPE_CHECKING:
    from flows.survey import Watched
    from flows.watching import Round


@click.command(
    short_help="Store and measure checkpoints as they appear.",
    epilog=examples(
        "actlas watch runs/my-model --corpus plays --every 10m",
        "actlas watch runs/my-model --corpus plays --once",
        "actlas watch EleutherAI/pythia-70m --corpus plays --every 1d --metrics two_nn",
        "actlas watch runs/a runs/b --corpus plays --json --prometheus /var/lib/node/actlas.prom",
    ),
)
@watch_options
@click.option(
    "--every",
    type=Age(),
    default="10m",
    show_default=True,
    metavar="10m|30s",
    help="Time between looks.",
)
@click.option("--once", is_flag=True, help="Look once, then end: with 1 if anything failed.")
@click.option(
    "--prometheus",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE.prom",
    help="Write figures for a monitoring system after each look.",
)
@click.option("--json", "as_json", is_flag=True, help="Log one JSON object a line.")
def watch(
    watched: Watched, every: timedelta, once: bool, prometheus: Path | None, as_json: bool
) -> None:
    """Look again and again where checkpoints appear; store and measure what the store lacks.

    A checkpoint still being written is left alone until it is whole, and a broken one stops no
    other. Any number of watchers may run; Ctrl-C ends one, and the store stays sound.
    """
    from flows.logs import log_to_output
    from flows.watching import Watcher
    from flows.watching import watch as watch_on

    if not every:
        raise click.UsageError("--every must be more than no time.")
    log_to_output(as_json=as_json, quiet=is_quiet())
    report = _reporter(watched, prometheus)
    # A service manager ends a service with SIGTERM: as with Ctrl-C, the slot is given back.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if once:
            latest = Watcher(watched).round(patient=True, strict=True)
            report(latest)
            _end(latest)
        else:
            if not as_json:
                say(f"Looking every {duration(every.total_seconds())}; Ctrl-C ends it.", err=True)
            watch_on(watched, every=every.total_seconds(), on_round=report)
    except KeyboardInterrupt:
        say("Stopped. The store holds whole checkpoints only.", err=True)


def _reporter(watched: Watched, prometheus: Path | None) -> Callable[[Round], None]:
    """Return what logs each round, and writes its figures."""
    import logging

    from flows.logs import fields
    from flows.monitoring import Counts, round_gauges, write_exposition

    counts = Counts()

    def report(latest: Round) -> None:
        found = latest.survey
        facts = {
            "held": found.held + sum(result.ingested for result in latest.ingested),
            "ingested": len(latest.ingested),
            "unfinished": len(found.unfinished),
            "failed": len(latest.failures),
            "lag_seconds": round(found.lag, 1),
            "seconds": round(latest.seconds, 3),
        }
        logging.getLogger("actlas.watch").info(
            "%d held, %d of them new, %d being written, %d failed; took %s",
            *list(facts.values())[:4],
            duration(latest.seconds),
            extra=fields("round", **facts),
        )
        counts.add(latest)
        if prometheus is not None:
            write_exposition(prometheus, round_gauges(watched, latest, counts))

    return report


def _end(latest: Round) -> None:
    """Fail, naming what failed."""
    from flows.failures import FlowError, raise_failures

    total = latest.survey.held + len(latest.survey.missing) + len(latest.survey.broken)
    try:
        raise_failures("checkpoints", latest.failures, max(total, len(latest.failures)))
    except FlowError as error:
        raise click.ClickException(str(error)) from error
