"""The server of the explorer: one process, on this machine, with everything it needs."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Final

from bokeh.application import Application
from bokeh.application.handlers.function import FunctionHandler
from bokeh.document import Document
from bokeh.server.server import Server

from flows.explore.live import LiveStore
from flows.explore.page import build_page

LOOPBACK: Final = "127.0.0.1"


def make_server(uri: str, *, address: str = LOOPBACK, port: int = 0) -> Server:
    """Make a server of the explorer that listens, and serves once its loop runs.

    Scripts and styles come from this process as well, so that no network is needed. What the
    store holds is read first, so that the first page does not wait for it.

    Args:
        uri: Where the store is.
        address: Address to listen on; whoever reaches it can read the store and start
            computations.
        port: Port to listen on, any that is free for 0.

    Raises:
        OSError: If the port is taken or the address is not one of this machine.
        StoreError: If the store cannot be read.
    """
    logging.getLogger("bokeh").setLevel(logging.ERROR)
    logging.getLogger("tornado.access").setLevel(logging.ERROR)
    # Without a port, the server adds its own.
    names = [LOOPBACK, "localhost"] if address == LOOPBACK else [address, socket.gethostname()]
    LiveStore(uri).read_ahead()
    return Server(
        {"/": Application(FunctionHandler(_page_of(uri)))},
        address=address,
        port=port,
        allow_websocket_origin=names,
        check_unused_sessions_milliseconds=5_000,
        unused_session_lifetime_milliseconds=15_000,
    )


def _page_of(uri: str) -> Callable[[Document], None]:
    def page(document: Document) -> None:
        context = document.session_context
        # Only the context of a server's session has one.
        request = getattr(context, "request", None)
        asked = {} if request is None else request.arguments
        build_page(document, uri, dark=asked.get("theme", [b""])[0] == b"dark")

    return page
