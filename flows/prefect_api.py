"""Requests to the Prefect server that is set, with errors a person can act on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import get_current_settings

from flows.failures import ServerError


@contextmanager
def prefect_client() -> Iterator[SyncPrefectClient]:
    """Give a client of the server that ``PREFECT_API_URL`` names.

    Raises:
        ServerError: If none is set, it does not answer, or it refuses what the block asks.
    """
    url = get_current_settings().api.url
    if url is None:
        # Prefect would start a private server, which nobody else sees and which ends with us.
        raise ServerError(
            "no Prefect server is set: start one with `prefect server start`, and set"
            " PREFECT_API_URL=http://127.0.0.1:4200/api"
        )
    try:
        with get_client(sync_client=True) as client:
            yield client
    except PrefectHTTPStatusError as error:
        raise ServerError(f"the Prefect server at {url} refuses: {error}") from error
    except (httpx.HTTPError, RuntimeError) as error:
        raise ServerError(
            f"the Prefect server at {url} does not answer ({error}): is it running, and is"
            " PREFECT_API_URL right?"
        ) from error
