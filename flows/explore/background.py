"""Work that a page waits for, done beside the thread that answers the browser."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from bokeh.document import Document

Result = TypeVar("Result")


class Background:
    """One thread of work for one page; what is asked for anew replaces what was asked before."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="explore")
        self._latest = 0
        self._closed = False

    def run(
        self,
        work: Callable[[], Result],
        then: Callable[[Result], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Do work, then hand its result to the page, unless other work was asked for meanwhile."""
        self._latest += 1
        asked = self._latest

        def current() -> bool:
            return asked == self._latest and not self._closed

        def unless_replaced() -> Result | None:
            return work() if current() else None

        def told(future: Future[Result | None]) -> None:
            if not current():
                return
            error, result = future.exception(), None
            if isinstance(error, Exception):
                failed(error)
            elif error is None and (result := future.result()) is not None:
                then(result)

        future = self._thread.submit(unless_replaced)
        future.add_done_callback(lambda done: self.soon(lambda: told(done)))

    def soon(self, call: Callable[[], None]) -> None:
        """Call a function in the thread of the page, if the page is still open."""
        if not self._closed:
            self._document.add_next_tick_callback(call)

    def close(self) -> None:
        """End the thread after the work that it is at."""
        self._closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)
