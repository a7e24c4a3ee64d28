"""Icechunk's and the system's errors while writing, turned into the store's own."""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Iterator
from typing import Final

import icechunk

from .errors import ConflictError, StoreError, StoreFullError
from .location import Location

_SAID_OF_OTHERS: Final = ("n_tokens", "site_layers")
"""Per-step coordinates that whoever lengthens an axis writes for the steps that are there."""


@contextlib.contextmanager
def translated(location: Location, *, needed: int | None = None) -> Iterator[None]:
    """Turn Icechunk's and the system's errors while writing into the store's own.

    Args:
        location: Where the store is.
        needed: Bytes to be written, before compression, where that is known.
    """
    try:
        yield
    except icechunk.RebaseFailedError as error:
        raise _conflict(error) from error
    except icechunk.ConflictError as error:
        raise ConflictError(f"another commit to {location.uri} came first") from error
    except (icechunk.IcechunkError, OSError) as error:
        if is_full(error):
            raise StoreFullError(_full_message(location, needed)) from error
        raise StoreError(
            f"cannot write to the store at {location.uri}: {first_line(error)}."
            " Check that it can be reached and that you may write to it"
        ) from error


def _conflict(error: icechunk.RebaseFailedError) -> ConflictError:
    conflicts = error.conflicts
    grown = icechunk.ConflictType.ChunksUpdatedInUpdatedArray
    said = tuple(f"/{name}" for name in _SAID_OF_OTHERS)
    return ConflictError(
        "another commit changed the same part of the store first: "
        + ", ".join(sorted({f"{item.path} ({item.conflict_type})" for item in conflicts})),
        (item.path for item in conflicts),
        restructured=all(
            item.conflict_type == grown or str(item.path).endswith(said) for item in conflicts
        ),
    )


def is_full(error: BaseException) -> bool:
    """Return whether an error of the system or of Icechunk says that there is no room left."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    return any(f"os error {number}" in str(error) for number in (errno.ENOSPC, errno.EDQUOT))


def _full_message(location: Location, needed: int | None) -> str:
    parts = []
    if needed is not None:
        parts.append(f"up to {needed:,} bytes were to be written")
    if location.directory is not None and location.directory.exists():
        parts.append(f"{shutil.disk_usage(location.directory).free:,} bytes are free")
    figures = f" ({', '.join(parts)})" if parts else ""
    return (
        f"no room left for the store at {location.uri}{figures}; the store is as it was."
        " Free some space and run again"
    )


def first_line(error: BaseException) -> str:
    """Return the one line of an Icechunk error that says what happened."""
    return str(error).strip().removeprefix("x ").splitlines()[0] if str(error) else repr(error)
