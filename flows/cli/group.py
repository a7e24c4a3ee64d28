"""The ``actlas`` command: its commands, and the options that stand before any of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from flows.cli.collect import gc
from flows.cli.compare import compare
from flows.cli.completion import completion
from flows.cli.configuration import configuration_files, name_variables, read_settings
from flows.cli.corpora import corpus
from flows.cli.definitions import metrics
from flows.cli.diff import diff
from flows.cli.doctor import doctor
from flows.cli.exchange import export, import_
from flows.cli.explore import explore
from flows.cli.held import ls
from flows.cli.history import history, tag
from flows.cli.ingest import ingest
from flows.cli.metrics import compute, plot, show
from flows.cli.monitor import monitor
from flows.cli.notify import notify
from flows.cli.options import examples
from flows.cli.repair import repair
from flows.cli.report import report
from flows.cli.reporting import ReportingGroup
from flows.cli.scheduled import flows
from flows.cli.study import study
from flows.cli.train import train_tiny
from flows.cli.verify import verify
from flows.cli.watch import watch
from flows.console import ONE_LOUDNESS, add_loudness, set_loudness
from flows.ending import ended_before_finalization


@click.group(
    cls=ReportingGroup,
    epilog=examples(
        "actlas corpus add plays --text hamlet.txt",
        "actlas ingest runs/tiny --corpus plays",
        "actlas compute average_cosine two_nn",
        "actlas plot average_cosine --x step -o cosine.png",
    ),
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
    },
)
@click.option("-q", "--quiet", is_flag=True, help="Print results and errors, nothing else.")
@click.option("-v", "--verbose", is_flag=True, help="Print where settings and errors come from.")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    show_envvar=True,
    metavar="FILE",
    help="Settings.  [default: the user's file, then actlas.toml of this folder]",
)
@click.version_option(package_name="actlas", prog_name="actlas")
@click.pass_context
def actlas(ctx: click.Context, quiet: bool, verbose: bool, config: Path | None) -> None:
    """Keep the activations of neural networks once, and ask them anything later."""
    if quiet and verbose:
        raise click.UsageError(ONE_LOUDNESS)
    set_loudness(quiet=quiet, verbose=verbose)
    files = configuration_files(config)
    ctx.default_map = read_settings(files, actlas)
    if verbose:
        told = ", ".join(map(str, files)) or "no file"
        click.echo(f"settings from {told}", err=True)


for _command in (
    corpus,
    ingest,
    watch,
    notify,
    flows,
    monitor,
    ls,
    metrics,
    compute,
    compare,
    show,
    plot,
    report,
    diff,
    explore,
    study,
    train_tiny,
    verify,
    history,
    tag,
    gc,
    export,
    import_,
    repair,
    doctor,
    completion,
):
    add_loudness(_command)
    actlas.add_command(_command)
name_variables(actlas)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with 0, 1 (failed) or 2 (usage)."""
    with ended_before_finalization():
        actlas(args=None if arguments is None else list(arguments), prog_name="actlas")
