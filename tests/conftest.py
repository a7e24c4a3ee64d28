"""A headless Chromium, spoken to over a pipe in its DevTools protocol.

It is the one ``ACTLAS_BROWSER`` names, or one that is installed; without either the tests of pages
are skipped. Set the variable where they must run.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flows.logs import LOGGER

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
# Chromium reads commands from descriptor 3 and writes to 4: both are first moved out of the way.
_LAUNCH = (
    "import fcntl, os, sys;"
    "ours = [fcntl.fcntl(int(given), fcntl.F_DUPFD, 10) for given in sys.argv[1:3]];"
    "os.dup2(ours[0], 3); os.dup2(ours[1], 4); os.execvp(sys.argv[3], sys.argv[3:])"
)
_COMPLAINTS = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
_PATIENCE = 90.0
_KEYS = {
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    " ": 32,
    "End": 35,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
}


class Browser:
    """One tab.

    Attributes:
        complaints: What the console, uncaught errors and the security policy reported.
        requests: Addresses that were asked for.
    """

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._buffer = b""
        self._last = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict:
        """Send a command and return its result; events that come first are noted."""
        self._last += 1
        message: dict[str, object] = {"id": self._last, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def open(
        self,
        page: Path | str,
        *,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        drawn: str = "document.documentElement?.dataset.ready === 'true'",
    ) -> None:
        """Open a file or an address and wait until it is drawn."""
        self.complaints.clear()
        self.requests.clear()
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.resize(width, height)
        url = page if isinstance(page, str) else page.resolve().as_uri()
        self.call("Page.navigate", url=url)
        self.wait(drawn)

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def evaluate(self, expression: str) -> object:
        """Return the value of a JavaScript expression, promises awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + _PATIENCE
        while self.evaluate(condition) is not True:
            if time.monotonic() > deadline:
                raise TimeoutError(f"never true: {condition}; {self.complaints}")
            time.sleep(0.02)

    def settle(self) -> None:
        """Wait for two frames, after which what was asked for is drawn."""
        self.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))"
        )

    def press(self, key: str) -> None:
        code = _KEYS.get(key, ord(key[0].upper()))
        text = {"Enter": "\r", " ": " "}.get(key)
        named = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        down = named if text is None else {**named, "text": text}
        kind = "rawKeyDown" if text is None else "keyDown"
        self.call("Input.dispatchKeyEvent", type=kind, **down)
        self.call("Input.dispatchKeyEvent", type="keyUp", **named)
        self.settle()

    def point(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.settle()

    def screenshot(self, path: Path, *, full: bool = True) -> None:
        data = self.call("Page.captureScreenshot", captureBeyondViewport=full)["data"]
        path.write_bytes(base64.b64decode(data))

    def _next(self) -> dict:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], _PATIENCE)
            read = os.read(self._answers, 1 << 16) if ready else b""
            if not read:
                raise RuntimeError(f"Chromium is gone or hangs; it had said {self.complaints}")
            self._buffer += read
        text, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(text)

    def _note(self, event: dict) -> None:
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method in _COMPLAINTS and parameters.get("type") not in ("log", "info", "debug"):
            self.complaints.append(json.dumps(parameters)[:2000])


@contextmanager
def running(executable: str, profile: Path) -> Iterator[Browser]:
    """Start Chromium with a profile of its own, and end it."""
    to_read, commands = os.pipe()
    answers, to_write = os.pipe()
    launcher = [sys.executable, "-c", _LAUNCH, str(to_read), str(to_write)]
    process = subprocess.Popen(
        [*launcher, executable, *_FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(to_read, to_write),
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(to_write)
    try:
        browser = Browser(commands, answers)
        yield browser
        browser._session = None
        browser.call("Browser.close")
    finally:
        process.terminate()
        process.wait(timeout=_PATIENCE)
        os.close(commands)
        os.close(answers)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for all tests, each of which opens its page afresh."""
    named = os.environ.get("ACTLAS_BROWSER")
    found = named or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip("no Chromium is installed, and ACTLAS_BROWSER names none")
    with running(found, tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(autouse=True)
def _records_reach_every_test() -> None:
    """Take back what a command said about logging, in a test before or in a fixture of many tests.

    `actlas watch` sends the records of actlas to standard output alone: it is the last that its
    process does. Here no later test would see them. What Prefect gives the root logger as a command
    runs writes to that command's standard error, which is gone once it has ended.
    """
    logger = logging.getLogger(LOGGER)
    logger.handlers, logger.propagate = [], True
    root = logging.getLogger()
    root.handlers = [one for one in root.handlers if type(one).__module__.startswith("_pytest.")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files with slow tests first, by their minutes: the last to end is waited for alone."""
    minutes: dict[Path, float] = {}
    for item in items:
        for marker in item.iter_markers("slow"):
            minutes[item.path] = max(minutes.get(item.path, 0), marker.kwargs.get("minutes", 0.2))
    items.sort(key=lambda item: -minutes.get(item.path, 0))
