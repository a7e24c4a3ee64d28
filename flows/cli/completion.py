"""``actlas completion``: what a shell needs to complete commands, options and names of metrics."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from flows.cli.options import examples

VARIABLE = "_ACTLAS_COMPLETE"


@click.command(
    short_help="Print what a shell needs to complete commands.",
    epilog=examples(
        "actlas completion bash > ~/.local/share/bash-completion/completions/actlas",
        "actlas completion zsh > ~/.zfunc/_actlas",
        "actlas completion fish > ~/.config/fish/completions/actlas.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script for SHELL: put it where the examples do, and start a new shell."""
    kind = get_completion_class(shell)
    assert kind is not None
    root = ctx.find_root()
    click.echo(kind(root.command, {}, "actlas", VARIABLE).source())
