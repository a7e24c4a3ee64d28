"""Failures of flows: which are worth another try, and how those of many tasks are told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from analysis.errors import AnalysisError
from flows.capture.errors import CaptureError
from store.errors import (
    FormatVersionError,
    IdentityConflictError,
    NonFiniteError,
    StoreNotFoundError,
    UnknownNameError,
)

_LASTING: Final = (
    AnalysisError,
    CaptureError,
    FormatVersionError,
    IdentityConflictError,
    NonFiniteError,
    StoreNotFoundError,
    UnknownNameError,
)


class FlowError(Exception):
    """Some of a flow's tasks failed; the others did what they had to."""


class ServerError(Exception):
    """The Prefect server is not set, does not answer, or refuses what it was asked."""


def is_worth_retrying(error: object) -> bool:
    """Tell whether the same task may succeed later with nothing changed by a person."""
    return not isinstance(error, _LASTING)


def count_failures(what: str, failed: int, total: int) -> str:
    """Return the beginning of what names failures: how many there are, and what became of the rest.

    Args:
        what: What they are failures of, in the plural.
        failed: How many failed.
        total: How many were tried.
    """
    others = "" if failed == total else ", the others are done"
    return f"{failed} of {total} {what} failed{others}:"


def raise_failures(what: str, failures: Mapping[str, str], total: int) -> None:
    """End a flow as failed when tasks of it failed, naming each with its reason.

    Raises:
        FlowError: If there are failures.
    """
    if failures:
        listed = "".join(f"\n  {name}: {reason}" for name, reason in failures.items())
        raise FlowError(count_failures(what, len(failures), total) + listed)
