"""How many threads the linear algebra library may use, for the whole process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

_lock = threading.Lock()
_entered = 0
_restore: Callable[[], None] | None = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let each call of NumPy's BLAS use one thread, until the last thread inside has left.

    The setting belongs to the process, so that overlapping limits of several threads would
    restore one another's; entries are counted instead. A limit that another thread of the process
    holds by threadpoolctl stays in force.
    """
    global _entered
    with _lock:
        _entered += 1
        if _entered == 1:
            _in_a_thread_of_its_own(_limit)
    try:
        yield
    finally:
        with _lock:
            _entered -= 1
            if _entered == 0 and _restore is not None:
                _in_a_thread_of_its_own(_restore)


def _limit() -> None:
    global _restore
    _restore = _libraries().limit(limits=1, user_api="blas").restore_original_limits


@cache
def _libraries() -> ThreadpoolController:
    """Return the libraries loaded by now, NumPy's among them; looking takes milliseconds."""
    return ThreadpoolController()


def _in_a_thread_of_its_own(work: Callable[[], None]) -> None:
    """Run work where threadpoolctl lets it: only the thread that limited OpenBLAS may do so again.

    That holds while the thread lives; another may be the last to leave.
    """
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
