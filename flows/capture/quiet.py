"""Keeps `transformers` from writing to the terminal of whoever calls us."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_LOCK: Final = threading.Lock()
_restore: list[Callable[[], None]] = []
_entered = 0


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the progress bars and the log of `transformers`, and restore both.

    They belong to the process: of several threads in such blocks, the last to leave restores them.
    """
    global _entered
    with _LOCK:
        _entered += 1
        if _entered == 1:
            _silence()
    try:
        yield
    finally:
        with _LOCK:
            _entered -= 1
            while _entered == 0 and _restore:
                _restore.pop()()


def _silence() -> None:
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    if logging.is_progress_bar_enabled():
        _restore.append(logging.enable_progress_bar)
    _restore.append(lambda: logging.set_verbosity(verbosity))
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def switch_gguf_bar() -> None:
    """Let the progress bar of GGUF weights obey the switch of all others of `transformers`."""
    from transformers import modeling_gguf_pytorch_utils
    from transformers.utils import logging

    # It is the one bar that comes straight from tqdm, past the switch.
    setattr(modeling_gguf_pytorch_utils, "tqdm", logging.tqdm)  # noqa: B010  # another type


def first_line(error: Exception) -> str:
    """Return what matters of a message that may go on to list every model there is."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
