"""The ``actlas`` command and how its errors reach the user: a sentence and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import click

from flows.cli.collect import gc
from flows.cli.compare import compare
from flows.cli.corpora import corpus
from flows.cli.definitions import metrics
from flows.cli.diff import diff
from flows.cli.exchange import export, import_
from flows.cli.held import ls
from flows.cli.history import history, tag
from flows.cli.ingest import ingest
from flows.cli.metrics import compute, plot, show
from flows.cli.monitor import monitor
from flows.cli.notify import notify
from flows.cli.options import examples
from flows.cli.repair import repair
from flows.cli.report import report
from flows.cli.scheduled import flows
from flows.cli.study import study
from flows.cli.train import train_tiny
from flows.cli.verify import verify
from flows.cli.watch import watch
from flows.ending import ended_before_finalization

FAILED: Final = 1
USAGE: Final = 2

_REPORTED: Final = (
    ("store.errors", "UnknownNameError", USAGE),
    ("store.errors", "StoreError", FAILED),
    ("flows.capture.errors", "UnknownSiteError", USAGE),
    ("flows.capture.errors", "UnknownStepError", USAGE),
    ("flows.capture.errors", "CaptureError", FAILED),
    ("flows.studies.errors", "UnknownStudyError", USAGE),
    ("flows.studies.errors", "StudyError", FAILED),
    ("flows.failures", "FlowError", FAILED),
    ("flows.failures", "ServerError", FAILED),
    ("flows.demo.materials", "MaterialError", FAILED),
    ("analysis.errors", "UnknownMetricError", USAGE),
    ("analysis.errors", "UnknownPopulationError", USAGE),
    ("analysis.errors", "AnalysisError", FAILED),
)
"""Module, exception and exit code; looked up only in modules that a command has imported."""


def _exit_code(error: Exception) -> int | None:
    """Return the exit code of an error a user can act on, None for a defect of ours."""
    for module, name, code in _REPORTED:
        if module in sys.modules and isinstance(error, getattr(sys.modules[module], name)):
            return code
    return FAILED if isinstance(error, OSError) else None


class _Failure(click.ClickException):
    """An error told as one message, with the exit code of its kind."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click declares it per class, we per kind


class _ReportingGroup(click.Group):
    """A group whose commands tell known errors without a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; known errors become a message and an exit code."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            # Click itself ends quietly when the reader has left, as in `actlas ls | head`.
            raise
        except Exception as error:
            code = _exit_code(error)
            if code is None:
                raise
            raise _Failure(str(error), code) from error


@click.group(
    cls=_ReportingGroup,
    epilog=examples(
        "actlas corpus add plays --text hamlet.txt",
        "actlas ingest runs/tiny --corpus plays",
        "actlas compute average_cosine two_nn",
        "actlas plot average_cosine --x step -o cosine.png",
    ),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="actlas", prog_name="actlas")
def actlas() -> None:
    """Keep the activations of neural networks once, and ask them anything later."""


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
    study,
    train_tiny,
    verify,
    history,
    tag,
    gc,
    export,
    import_,
    repair,
):
    actlas.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with 0, 1 (failed) or 2 (usage)."""
    with ended_before_finalization():
        actlas(args=None if arguments is None else list(arguments), prog_name="actlas")
