"""How a command ends that did not succeed: one sentence on standard error, and an exit code."""

from __future__ import annotations

import sys
import traceback
from typing import Final

import click
from click.core import ParameterSource

from flows.console import is_verbose, what_is_kept

FAILED: Final = 1
USAGE: Final = 2

_REPORTED: Final = (
    ("store.errors", "UnknownNameError", USAGE),
    ("store.errors", "UnknownMomentError", USAGE),
    ("store.errors", "StoreNotFoundError", USAGE),
    ("store.errors", "InvalidLocationError", USAGE),
    ("store.errors", "InvalidNameError", USAGE),
    ("store.errors", "UnsafeMarginError", USAGE),
    ("store.errors", "StoreError", FAILED),
    ("flows.capture.errors", "UnknownSiteError", USAGE),
    ("flows.capture.errors", "UnknownDeviceError", USAGE),
    ("flows.capture.errors", "UnknownModelError", USAGE),
    ("flows.capture.errors", "UnknownStepError", USAGE),
    ("flows.capture.errors", "UnknownEntryError", USAGE),
    ("flows.capture.errors", "InputChoiceError", USAGE),
    ("flows.capture.errors", "CaptureError", FAILED),
    ("flows.studies.errors", "UnknownStudyError", USAGE),
    ("flows.studies.errors", "StudyChoiceError", USAGE),
    ("flows.studies.errors", "StudyError", FAILED),
    ("flows.failures", "FlowError", FAILED),
    ("flows.failures", "ServerError", FAILED),
    ("flows.demo.materials", "MaterialError", FAILED),
    ("analysis.errors", "UnknownMetricError", USAGE),
    ("analysis.errors", "UnknownPopulationError", USAGE),
    ("analysis.errors", "RowExpressionError", USAGE),
    ("analysis.errors", "UnknownSchedulerError", USAGE),
    ("analysis.errors", "AnalysisError", FAILED),
)
"""Module, exception and exit code; looked up only in modules that a command has imported."""


def exit_code(error: Exception) -> int | None:
    """Return the exit code of an error a user can act on, None for a defect of ours."""
    for module, name, code in _REPORTED:
        if module in sys.modules and isinstance(error, getattr(sys.modules[module], name)):
            return code
    return FAILED if isinstance(error, OSError) else None


def _where_from(error: click.BadParameter) -> str:
    """Return where a value that was not typed came from, as the end of a sentence."""
    if error.ctx is None or error.param is None or error.param.name is None:
        return ""
    source = error.ctx.get_parameter_source(error.param.name)
    if source is ParameterSource.DEFAULT_MAP:
        return " (from the settings of actlas.toml, or of your own file)"
    if source is ParameterSource.ENVIRONMENT:
        named = f"{error.ctx.auto_envvar_prefix}_{error.param.name.upper()}"
        return f" (from the environment variable {error.param.envvar or named})"
    return ""


class Failure(click.ClickException):
    """An error told as one message, with the exit code of its kind."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click declares it per class, we per kind


class ReportingGroup(click.Group):
    """A group whose commands tell known errors, and being stopped, without a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; known errors become a message and an exit code."""
        try:
            return super().invoke(ctx)
        except click.BadParameter as error:
            origin = _where_from(error)
            if not origin:
                raise
            raise click.BadParameter(error.message + origin, error.ctx, error.param) from error
        except (click.ClickException, click.exceptions.Exit, BrokenPipeError):
            # Click itself ends quietly when the reader has left, as in `actlas ls | head`.
            raise
        except (KeyboardInterrupt, click.Abort) as stop:
            raise Failure(f"stopped; {what_is_kept()}", FAILED) from stop
        except Exception as error:
            code = exit_code(error)
            if code is None:
                raise
            if is_verbose():
                click.echo(traceback.format_exc(), err=True)
            raise Failure(str(error), code) from error
