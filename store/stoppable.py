"""Waiting so that Ctrl-C is heard."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

Result = TypeVar("Result")


def stoppable(work: Callable[[], Result]) -> Result:
    """Do work that may take minutes in compiled code, where Python hears no signal.

    It is done by a thread that ends with the process, so only what may be broken off anywhere.
    """
    outcome: Future[Result] = Future()

    def attempt() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
            outcome.set_exception(error)

    Thread(target=attempt, name="actlas-stoppable", daemon=True).start()
    return outcome.result()
