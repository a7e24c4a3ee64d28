"""``actlas notify``: what a training script says when a checkpoint is whole."""

from __future__ import annotations

import click

from flows.cli.options import examples


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
def notify(checkpoint: str, deployment: str | None) -> None:
    """Announce CHECKPOINT, on which the deployment of `actlas flows deploy` looks at once.

    Needs PREFECT_API_URL. Without a server, `actlas watch` finds the checkpoint by itself.
    """
    from flows.notify import notify as announce
    from flows.notify import start_deployment

    if deployment is None:
        announce(checkpoint)
        click.echo(f"Announced {checkpoint}")
    else:
        click.echo(f"Started {deployment}: {start_deployment(checkpoint, deployment)}")
