"""``actlas flows``: what goes through Prefect, for schedules, retries and pages to look at."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.cli.options import Age, examples, json_option
from flows.cli.watch_options import watch_options
from flows.console import print_json, say

if TYPE_CHECKING:
    from flows.survey import Watched


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


@flows.command(epilog=examples("actlas flows serve runs/my-model --corpus plays --every 10m"))
@watch_options
@click.option("--every", type=Age(), default="10m", show_default=True, metavar="10m|30s")
def serve(watched: Watched, every: timedelta) -> None:
    """Watch on a schedule from this process, without a worker; runs show in Prefect's pages."""
    from flows.requests import WatchRequest
    from flows.serving import serve_watch

    serve_watch(WatchRequest.of(watched), every=every)


@flows.command(epilog=examples("actlas flows run runs/my-model --corpus plays --json"))
@watch_options
@json_option
def run(watched: Watched, as_json: bool) -> None:
    """Look once, as a run of the Prefect flow `watch`, in this process."""
    from flows.requests import WatchRequest
    from flows.watch import watch

    results = watch(WatchRequest.of(watched))
    if as_json:
        print_json(results)
    else:
        click.echo(f"{len(results)} checkpoints done.")
