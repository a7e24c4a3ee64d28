"""How the process of a command ends: with the exit code that the command gave.

Icechunk answers reads from threads of its own. One that is still handing over its answer while
the interpreter is finalized cannot take the interpreter's lock any more: Python ends that thread
by unwinding it, which Rust forbids, and the whole process is aborted (SIGABRT, code 134) after
all its work is done. Seen once in 30 commands on a busy machine. So the process is ended before
finalization begins, after everything else that was to happen at exit has happened.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Iterator

UNEXPECTED = 1
"""Exit code of a process that ends with an exception other than SystemExit."""


@contextlib.contextmanager
def ended_before_finalization() -> Iterator[None]:
    """Let the process end with the code of what runs inside, and without finalization.

    To be entered before anything heavy is imported: functions registered with :mod:`atexit` run
    in reverse order, and this one has to come last.
    """
    codes = [UNEXPECTED]
    atexit.register(lambda: _end(codes[-1]))
    try:
        yield
    except SystemExit as ending:
        codes.append(_code(ending))
        raise
    codes.append(0)


def _code(ending: SystemExit) -> int:
    if ending.code is None:
        return 0
    return ending.code if isinstance(ending.code, int) else UNEXPECTED


def _end(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        # A reader that left, as in `actlas ls | head`, takes no more.
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
