"""``actlas notify``: what a training script says when a checkpoint is whole."""

from __future__ import annotations

import click

from flows.cli.options import examples, json_option
from flows.console import print_json


@click.command(
    short_help="Tell the Prefect server that a checkpoint is whole.",
    epilog=examples(
        "actlas notify runs/my-model/checkpoint-1000",
        "actlas notify runs/other/checkpoint-1000 --run watch/actlas",
    ),
)
@click.argument("checkpoint")
@click.option(
    "--run",
    "deployment",
    metavar="FLOW/DEPLOYMENT",
    help="Start this deployment for the checkpoint alone, instead of announcing it.",
)
@json_option
def notify(checkpoint: str, deployment: str | None, as_json: bool) -> None:
    """Announce CHECKPOINT, on which the deployment of `actlas flows deploy` looks at once.

    Needs PREFECT_API_URL. Without a server, `actlas watch` finds the checkpoint by itself.
    """
    from flows.notify import notify as announce
    from flows.notify import start_deployment

    run = None
    if deployment is None:
        announce(checkpoint)
        told = f"Announced {checkpoint}"
    else:
        run = start_deployment(checkpoint, deployment)
        told = f"Started {deployment}: {run}"
    if as_json:
        print_json({"checkpoint": checkpoint, "deployment": deployment, "run": run})
    else:
        click.echo(told)
