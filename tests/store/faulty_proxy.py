"""A proxy before an object store that misbehaves on demand."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

Fault = Callable[[str, str], str | None]
"""From method and path of a request to what goes wrong, None when nothing does.

One of ``"503"``, ``"404"``, ``"403"``, ``"short"``, ``"cut"``, ``"slow"`` and ``"lost"``.

A lost request is carried out, but its answer never arrives.
"""


class FaultyProxy:
    """Forwards requests to an endpoint, except where :attr:`fault` says otherwise."""

    def __init__(self, endpoint: str) -> None:
        self.upstream = urlsplit(endpoint).netloc
        self.fault: Fault = lambda _method, _path: None
        self.faults: list[tuple[str, str, str]] = []
        self.lock = threading.Lock()

    def fail_once(self, fault: str, *, method: str, part: str, times: int = 1) -> None:
        """Let the next requests of a method whose path contains a part go wrong."""
        left = [times]

        def decide(got_method: str, path: str) -> str | None:
            with self.lock:
                if got_method != method or part not in path or left[0] == 0:
                    return None
                left[0] -= 1
                return fault

        self.fault = decide


@contextlib.contextmanager
def serve(endpoint: str) -> Iterator[tuple[str, FaultyProxy]]:
    """Run a proxy and yield its own endpoint, and the proxy."""
    proxy = FaultyProxy(endpoint)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = proxy.fault(self.command, self.path)
            if fault:
                proxy.faults.append((fault, self.command, self.path))
            if fault == "503":
                self.reply(503, [("Retry-After", "0")], b"<Error><Code>SlowDown</Code></Error>")
            elif fault == "404":
                self.reply(404, [], b"<Error><Code>NoSuchKey</Code></Error>")
            elif fault == "403":
                self.reply(403, [], b"<Error><Code>AccessDenied</Code></Error>")
            elif fault == "cut":
                self.cut()
            else:
                if fault == "slow":
                    time.sleep(1)
                status, headers, content = self.forward(body)
                if fault == "short":
                    content = content[:-100]
                if fault == "lost":
                    self.cut()
                else:
                    self.reply(status, headers, content)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815

        def forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
            connection = http.client.HTTPConnection(proxy.upstream, timeout=30)
            with contextlib.closing(connection):
                connection.putrequest(
                    self.command, self.path, skip_host=True, skip_accept_encoding=True
                )
                for name, value in self.headers.items():
                    connection.putheader(name, value)
                connection.endheaders(body or None)
                response = connection.getresponse()
                return response.status, response.getheaders(), response.read()

        def reply(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
            self.send_response_only(status)
            hidden = {"transfer-encoding", "connection"}
            if self.command != "HEAD":
                hidden.add("content-length")
                self.send_header("Content-Length", str(len(content)))
            for name, value in headers:
                if name.lower() not in hidden:
                    self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def cut(self) -> None:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, *_: object) -> None:
            """Keep the output of the tests clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
