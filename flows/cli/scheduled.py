"""``actlas flows``: what goes through Prefect, for schedules, retries and pages to look at."""

from __future__ import annotations

import functools
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.cli.options import (
    Age,
    NameList,
    examples,
    json_option,
    settle_option,
    store_option,
)
from flows.cli.worker_options import dask_option
from flows.console import print_json, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from flows.requests import WatchRequest


@click.group(name="flows", short_help="Run through Prefect: deploy, serve or run.")
def flows() -> None:
    """Run the flows of actlas through Prefect; `actlas watch` needs no server."""


@flows.command(
    epilog=examples(
        "ACTLAS_CHECKPOINTS=/runs/my-model ACTLAS_CORPUS=plays actlas flows deploy",
        "actlas flows deploy --file my-prefect.yaml --check",
    )
)
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default="deploy/prefect.yaml",
    show_default=True,
    help="What to deploy.",
)
@click.option("--check", is_flag=True, help="Only check it; no server is asked.")
@json_option
def deploy(file: Path, check: bool, as_json: bool) -> None:
    """Register deployments, their work pool, and the watch over runs that have died.

    Each deployment's parameters are checked against its flow first. Start a worker with
    `prefect worker start --pool actlas`.
    """
    from flows.deployments import deploy as register
    from flows.deployments import read_deployments

    names = [one.name for one in read_deployments(file)]
    for line in () if check else register(file):
        say(line, err=as_json)
    if as_json:
        print_json({"file": str(file), "deployments": names, "registered": not check})
    elif check:
        click.echo(f"{file}: {', '.join(names)} can run")


def _watch_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add what says which checkpoints are looked for; the command takes it as one ``request``."""

    @click.argument("sources", nargs=-1, required=True, metavar="PATH|HUB_ID…")
    @click.option("--corpus", required=True, metavar="NAME", help="A corpus added before.")
    @settle_option
    @click.option("--metrics", type=NameList(), metavar="A,B", help="Metrics.  [default: all]")
    @dask_option
    @store_option
    @functools.wraps(command)
    def with_request(
        *,
        sources: tuple[str, ...],
        corpus: str,
        settle: timedelta,
        metrics: tuple[str, ...] | None,
        scheduler: str,
        store: str,
        **others: object,
    ) -> None:
        from flows.requests import WatchRequest

        request = WatchRequest(
            sources=list(sources),
            corpus=corpus,
            settle=settle.total_seconds(),
            metrics=None if metrics is None else list(metrics),
            scheduler=scheduler,
            store=store,
        )
        return command(request=request, **others)

    return with_request


@flows.command(epilog=examples("actlas flows serve runs/my-model --corpus plays --every 10m"))
@_watch_options
@click.option("--every", type=Age(), default="10m", show_default=True, metavar="10m|30s")
def serve(request: WatchRequest, every: timedelta) -> None:
    """Watch on a schedule from this process, without a worker; runs show in Prefect's pages."""
    from flows.serving import serve_watch

    serve_watch(request, every=every)


@flows.command(epilog=examples("actlas flows run runs/my-model --corpus plays --json"))
@_watch_options
@json_option
def run(request: WatchRequest, as_json: bool) -> None:
    """Look once, as a run of the Prefect flow `watch`, in this process."""
    from flows.watch import watch

    results = watch(request)
    if as_json:
        print_json(results)
    else:
        click.echo(f"{len(results)} checkpoints done.")
