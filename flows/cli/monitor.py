"""``actlas monitor``: figures for a monitoring system."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.cli.options import Age, examples, json_option, store_option
from flows.console import print_json, say

if TYPE_CHECKING:
    from flows.monitoring import Gauge


@click.command(
    short_help="Figures for Prometheus: what is held, lags behind, fails.",
    epilog=examples(
        "actlas monitor",
        "actlas monitor runs/my-model --corpus plays --port 9464",
        "actlas monitor runs/my-model --corpus plays -o /var/lib/node/actlas.prom --every 5m",
    ),
)
@click.argument("sources", nargs=-1, metavar="[PATH|HUB_ID…]")
@click.option("--corpus", metavar="NAME", help="The corpus that the sources are run over.")
@click.option("--port", type=click.IntRange(0, 65535), help="Serve /metrics on loopback.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE.prom",
    help="Write the figures to a file, which is replaced as a whole.",
)
@click.option("--every", type=Age(), metavar="5m", help="Write the file again and again.")
@store_option
@json_option
def monitor(
    sources: tuple[str, ...],
    corpus: str | None,
    port: int | None,
    output: Path | None,
    every: timedelta | None,
    store: str,
    as_json: bool,
) -> None:
    """Print figures in the text format of Prometheus, write them to a file, or serve them.

    With SOURCES and --corpus also how far the store is behind the checkpoints that are there.
    Nothing is stored or computed.
    """
    if bool(sources) != (corpus is not None):
        raise click.UsageError("PATH|HUB_ID goes with --corpus NAME.")
    if port is not None and output is not None:
        raise click.UsageError("Give either --port or --output.")
    if as_json and (port is not None or output is not None):
        raise click.UsageError("--json is for what is printed: without --port and --output.")
    if every is not None and output is None:
        raise click.UsageError("--every goes with --output FILE.prom.")
    from flows.monitoring import exposition, write_exposition

    gather = _gatherer(store, sources, corpus)
    if port is not None:
        _serve(port, gather)
    elif as_json:
        print_json([_as_json(gauge) for gauge in gather()])
    elif output is None:
        click.echo(exposition(gather()), nl=False)
    else:
        write_exposition(output, gather())
        try:
            while every:
                time.sleep(every.total_seconds())
                write_exposition(output, gather())
        except KeyboardInterrupt:
            say(f"Stopped; {output} has the latest figures.", err=True)


def _as_json(gauge: Gauge) -> dict[str, object]:
    values = [{"labels": dict(labels), "value": value} for labels, value in gauge.values.items()]
    return {"name": gauge.name, "help": gauge.help, "kind": gauge.kind, "values": values}


def _gatherer(
    store: str, sources: tuple[str, ...], corpus: str | None
) -> Callable[[], Sequence[Gauge]]:
    from flows.capture.digests import DigestCache
    from flows.monitoring import gather
    from flows.survey import Watched

    digest = DigestCache()
    watched = None if corpus is None else Watched(store=store, sources=sources, corpus=corpus)
    gather(store, watched, digest)  # What the user can set right is told at once.
    return lambda: gather(store, watched, digest)


def _serve(port: int, gather: Callable[[], Sequence[Gauge]]) -> None:
    from flows.monitoring import LOOPBACK, serve_metrics

    with serve_metrics(port, gather) as server:
        click.echo(f"http://{LOOPBACK}:{server.server_port}/metrics")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("Stopped.", err=True)
