"""Keeps `transformers` from writing to the terminal of whoever calls us."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the progress bars and the log of `transformers`, and restore both."""
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        # Its reader of GGUF draws a bar that no setting switches off.
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def first_line(error: Exception) -> str:
    """Return what matters of a message that may go on to list every model there is."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
