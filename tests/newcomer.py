"""Types what a document shows, as a newcomer does: one line after another, in one folder.

What serves until it is stopped is asked once, and then stopped as Ctrl-C does.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
from click.testing import CliRunner
from tornado.ioloop import IOLoop

import flows.explore.server
import flows.monitoring
import flows.watching
from flows.cli import actlas

PATIENCE = 60


class Newcomer:
    """Somebody at a shell.

    Attributes:
        seen: What the pages said that commands served, by the command.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.seen: dict[str, str] = {}
        # Another process of the tests may have taken the usual port.
        monkeypatch.setenv("ACTLAS_EXPLORE_PORT", "0")

    def types(self, line: str, *, code: int = 0) -> str:
        """Type a line that ends with an exit code, and return what is printed."""
        words = shlex.split(line)
        while words and re.match(r"[A-Z_]+=", words[0]):
            self._set(words.pop(0))
        if words[:1] == ["export"]:
            for setting in words[1:]:
                self._set(setting)
            return ""
        assert words[0] == "actlas", line
        with self._stopped(words[1:]):
            result = CliRunner().invoke(actlas, words[1:], catch_exceptions=False)
        assert result.exit_code == code, f"{line}\n{result.output}"
        return result.output

    def _set(self, setting: str) -> None:
        variable, _, value = setting.partition("=")
        self.monkeypatch.setenv(variable, value)

    @contextmanager
    def _stopped(self, words: list[str]) -> Iterator[None]:
        if words[0] == "explore":
            with _own_loop(), self._asked(words, flows.explore.server, "make_server", ""):
                yield
        elif words[0] == "monitor" and "--port" in words:
            with self._asked(words, flows.monitoring, "serve_metrics", "metrics"):
                yield
        elif words[0] == "watch" and "--once" not in words:
            with _stopped_after_a_round():
                yield
        else:
            yield

    @contextmanager
    def _asked(self, words: list[str], module: object, name: str, page: str) -> Iterator[None]:
        """Ask the server that a function makes for a page, then press Ctrl-C."""
        make = getattr(module, name)

        def ask(port: int) -> None:
            try:
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{port}/{page}", timeout=PATIENCE
                ) as answer:
                    self.seen[words[0]] = answer.read().decode()
            finally:
                os.kill(os.getpid(), signal.SIGINT)

        def made(*arguments: object, **chosen: object) -> object:
            server = make(*arguments, **chosen)
            port = getattr(server, "server_port", None) or server.port
            threading.Thread(target=ask, args=(port,)).start()
            return server

        # As in a process of its own, whatever tests before this one have put there.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with mock.patch.object(module, name, made):
                yield
        finally:
            signal.signal(signal.SIGINT, before)


@contextmanager
def _own_loop() -> Iterator[None]:
    asyncio.set_event_loop(asyncio.new_event_loop())
    try:
        yield
    finally:
        IOLoop.current().close(all_fds=True)
        asyncio.set_event_loop(None)


@contextmanager
def _stopped_after_a_round() -> Iterator[None]:
    """Press Ctrl-C while a watcher rests, to which everything looks half a minute older."""
    rest = threading.Event.wait

    def interrupted(event: threading.Event, timeout: float | None = None) -> bool:
        if threading.current_thread() is not threading.main_thread() or (timeout or 0) < 300:
            return rest(event, timeout)
        raise KeyboardInterrupt

    with (
        mock.patch.object(threading.Event, "wait", interrupted),
        mock.patch("flows.survey.is_settled", return_value=True),
    ):
        yield
