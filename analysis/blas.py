"""How many threads the linear algebra library may use, for the whole process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

_lock = threading.Lock()
_entered = 0
_limits: threadpool_limits | None = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let each call of BLAS use one thread, until the last of the threads inside has left.

    The setting belongs to the process, so that overlapping limits of several threads would
    restore one another's; entries are counted instead.
    """
    global _entered, _limits
    with _lock:
        if _entered == 0:
            _limits = threadpool_limits(limits=1, user_api="blas")
        _entered += 1
    try:
        yield
    finally:
        with _lock:
            _entered -= 1
            if _entered == 0 and _limits is not None:
                _limits.restore_original_limits()
                _limits = None
