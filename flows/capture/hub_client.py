"""Asks the Hub with patience, and says what went wrong in words of our own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from flows.capture.errors import CheckpointError, UnknownModelError
from flows.capture.quiet import first_line

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_WAITS: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds between attempts, where the Hub does not say how long to wait."""

_BUSY: Final = frozenset({429, 500, 502, 503, 504})
_Result = TypeVar("_Result")


def ask_hub(repo: str, ask: Callable[[HfApi], _Result], *, first_contact: bool = False) -> _Result:
    """Ask the Hub, and again while it is busy.

    Args:
        repo: Id of the repository asked about.
        ask: Makes the request.
        first_contact: Whether a connection that cannot be made is an error at once.

    Raises:
        CheckpointError: If it does not answer, or refuses.
    """
    from huggingface_hub import HfApi

    for wait in (*_WAITS, None):
        try:
            return ask(HfApi())
        except Exception as error:
            if wait is None or not (_is_busy(error) or (_is_lost(error) and not first_contact)):
                kind = UnknownModelError if _is_unknown(error) else CheckpointError
                raise kind(_problem(repo, error, first_contact=first_contact)) from error
            time.sleep(_told_wait(error) or wait)
    raise AssertionError("the last attempt returns or raises")


def _is_unknown(error: Exception) -> bool:
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    return isinstance(error, RepositoryNotFoundError) and not isinstance(error, GatedRepoError)


def _is_busy(error: Exception) -> bool:
    response = getattr(error, "response", None)
    return response is not None and response.status_code in _BUSY


def _is_lost(error: Exception) -> bool:
    """Tell whether a connection broke: of the HTTP client, or as the Hub's client words it."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    http_client = type(error).__module__.startswith("httpx")
    return http_client or isinstance(error, LocalEntryNotFoundError)


def _told_wait(error: Exception) -> float | None:
    response = getattr(error, "response", None)
    told = response.headers.get("Retry-After", "") if response is not None else ""
    return float(told) if told.isdigit() else None


def _problem(repo: str, error: Exception, *, first_contact: bool) -> str:
    from huggingface_hub.errors import GatedRepoError

    if isinstance(error, GatedRepoError):
        return f"{repo} is gated: ask for access on its page, and log in with `hf auth login`"
    if _is_unknown(error):
        return f"{repo} is neither a folder here nor a repository on the Hub that you may read"
    if _is_lost(error) and not first_contact:
        return (
            f"{repo} was being read, and the Hub cannot be reached any more: {first_line(error)} "
            "Give the same command again, and what is missing is fetched"
        )
    if _is_lost(error):
        return f"{repo} is not a folder here, and the Hub cannot be reached: {first_line(error)}"
    return f"{repo} cannot be read from the Hub: {first_line(error)}"
