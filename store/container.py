"""The Icechunk repository that a store lives in: created, configured, opened."""

from __future__ import annotations

from typing import Any, Final

import icechunk

from .configuration import icechunk_config, opening_config
from .errors import FormatVersionError, StoreError, StoreExistsError, StoreNotFoundError
from .location import Location, check_directory
from .translation import first_line, translated

CREATION_OPTIONS: Final[dict[str, Any]] = (
    {} if icechunk.__version__.startswith("1.") else {"spec_version": 1}
)
"""Icechunk 2 writes format 1 too, which Icechunk 1 can read, but creates format 2 by itself."""

RIVAL_SIGNS: Final = ("clean prefix", "config was updated", "branch update conflict")
"""What Icechunk says when it creates a repository where there is one, or is just becoming one."""


def create_container(location: Location) -> icechunk.Repository:
    """Create an Icechunk repository.

    Raises:
        StoreExistsError: If there is something, even if it only came up this moment.
        StoreError: If the place cannot be written to.
    """
    with translated(location):
        try:
            return icechunk.Repository.create(
                location.storage(), config=icechunk_config(), **CREATION_OPTIONS
            )
        except (icechunk.IcechunkError, icechunk.ConflictError) as error:
            if not any(sign in str(error) for sign in RIVAL_SIGNS):
                raise
            raise StoreExistsError(
                f"cannot create a store at {location.uri}: something is there already"
            ) from error


def configure_container(location: Location) -> icechunk.Repository:
    """Persist our configuration with a repository that has none, and open it again with it."""
    configured = icechunk.Repository.open(location.storage(), config=icechunk_config())
    if icechunk.Repository.fetch_config(location.storage()) is None:
        configured.save_config()
    return _opened(location)


def open_container(location: Location) -> icechunk.Repository:
    """Open an Icechunk repository.

    Raises:
        StoreNotFoundError: If there is none.
        FormatVersionError: If its format is newer than the installed Icechunk knows.
        StoreError: If it cannot be reached.
    """
    check_directory(location)
    try:
        return _opened(location)
    except icechunk.IcechunkError as error:
        if "doesn't exist" in str(error):
            raise StoreNotFoundError(f"no store at {location.uri}: nothing is there") from None
        if "v2 format" in str(error):
            raise FormatVersionError(
                f"the store at {location.uri} uses a newer Icechunk format than icechunk"
                f" {icechunk.__version__} reads. Upgrade Python and icechunk"
            ) from error
        raise StoreError(
            f"cannot open {location.uri}: {first_line(error)}. Check that it can be reached, and"
            " for an object store its address, region and keys (such as AWS_ENDPOINT_URL)"
        ) from error


def _opened(location: Location) -> icechunk.Repository:
    config = opening_config(on_disk=location.directory is not None)
    return icechunk.Repository.open(location.storage(), config=config)
