"""``actlas explore``: a page on this machine to look around a store with."""

from __future__ import annotations

from importlib.util import find_spec

import click

from flows.cli.options import examples, json_option, store_option
from flows.console import print_json, say


@click.command(
    short_help="Look around the store in a browser.",
    epilog=examples("actlas explore", "actlas explore --port 8050"),
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=5006,
    show_default=True,
    help="Port to listen on; 0 for any that is free.",
)
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. With any but the default, others can read the store and start"
    " computations in it: there is no password.",
)
@store_option
@json_option
def explore(port: int, address: str, store: str, as_json: bool) -> None:
    """Serve a page to look around the store with, while it grows, until Ctrl-C.

    Metrics over depth and training, the tokens of a layer in a plane, the nearest tokens of each,
    and metrics computed on demand. Nothing is loaded from the network.
    """
    from store.repository import Repository

    if find_spec("bokeh") is None:
        raise click.ClickException(
            "the explorer needs bokeh, which is not installed: pip install 'actlas[explore]'"
        )
    Repository.open(store, read_only=True)
    from flows.explore.server import make_server

    try:
        server = make_server(store, address=address, port=port)
    except OSError as error:
        raise click.ClickException(
            f"cannot listen on {address}, port {port} ({error.strerror or error}): choose another"
            " with --port, or 0 for any"
        ) from error
    server.start()
    try:
        url = f"http://{address}:{server.port}/"
        if as_json:
            print_json({"url": url, "store": store})
        else:
            click.echo(f"Open {url} in a browser. Ctrl-C ends it.")
        server.io_loop.start()
    except KeyboardInterrupt:
        say("Stopped; metrics that were computed here are in the store.", err=True)
    finally:
        server.stop()
