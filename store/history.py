"""The past of a store: its snapshots, their names, and finding one by name or time."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import icechunk

from .configuration import BRANCH
from .durable import sync_filesystem
from .errors import InvalidNameError, StoreError, UnknownMomentError, UnknownNameError
from .messages import is_of_slot
from .repository import Repository
from .translation import first_line, is_full, translated

NOW: Final = "now"
"""What `actlas diff` calls the newest snapshot; no tag can have this name."""


@dataclass(frozen=True)
class Snapshot:
    """One state of a store, which never changes.

    Attributes:
        id: Its id.
        message: What the commit that made it did.
        written_at: When it was made, in UTC.
        tags: Names given to it.
        bookkeeping: Whether nothing that is read differs from the state before it: a writer
            reserved a step, kept it, or gave it up.
    """

    id: str
    message: str
    written_at: datetime
    tags: tuple[str, ...]
    bookkeeping: bool


def history(repository: Repository) -> list[Snapshot]:
    """Return the snapshots of a store, the newest first."""
    names: dict[str, list[str]] = {}
    for name, snapshot in tags(repository).items():
        names.setdefault(snapshot, []).append(name)
    return [
        Snapshot(
            str(one.id),
            one.message,
            one.written_at,
            tuple(names.get(str(one.id), ())),
            is_of_slot(one.message),
        )
        for one in repository.icechunk.ancestry(branch=BRANCH)
    ]


def tags(repository: Repository) -> dict[str, str]:
    """Return the tags of a store by name, with the id of the snapshot each stands for."""
    opened = repository.icechunk
    return {name: str(opened.lookup_tag(name)) for name in sorted(opened.list_tags())}


def create_tag(repository: Repository, name: str, snapshot: str | None = None) -> str:
    """Name a snapshot for good: a tag is never moved, and keeps its snapshot from expiring.

    Args:
        repository: The store.
        name: The name.
        snapshot: Id of the snapshot, the newest by default.

    Returns:
        The id of the snapshot.

    Raises:
        InvalidNameError: If the name is ``now``.
        UnknownMomentError: If there is no such snapshot.
        StoreError: If the name is taken, or if the tag cannot be written.
        StoreFullError: If the disk is full; there is no such tag then.
    """
    if name == NOW:
        raise InvalidNameError(
            f"{NOW!r} cannot name a snapshot: `actlas diff` calls the newest one so, and would"
            " never find the tag; choose another name"
        )
    with repository.lock():
        target = snapshot or repository.snapshot_id()
        repository.read(target)
        taken = tags(repository).get(name)
        if taken == target:
            return target
        if taken is not None:
            raise StoreError(
                f"tag {name!r} stands for snapshot {taken} already, not for {target};"
                " tags are not moved: choose another name"
            )
        _write_tag(repository, name, target)
    return target


def _write_tag(repository: Repository, name: str, target: str) -> None:
    """Create a tag, on a disk durably, or leave nothing of it."""
    directory = repository.location.directory
    with translated(repository.location):
        try:
            repository.icechunk.create_tag(name, target)
        except icechunk.IcechunkError as error:
            if directory is not None:
                # Icechunk makes the directory first; what is not empty is no remainder of this.
                with contextlib.suppress(OSError):
                    (directory / "refs" / f"tag.{name}").rmdir()
            if is_full(error):
                raise
            raise StoreError(
                f"cannot create tag {name!r} in {repository.uri}: {first_line(error)}."
                " Check that the store can be written to"
            ) from error
        if directory is not None:
            sync_filesystem(directory)


def find_snapshot(
    repository: Repository,
    *,
    snapshot: str | None = None,
    tag: str | None = None,
    as_of: datetime | str | None = None,
) -> str:
    """Return the id of the snapshot meant by at most one of an id, a tag and a time.

    Args:
        repository: The store.
        snapshot: An id, returned as it is.
        tag: Name of a tag.
        as_of: A time, as ISO 8601 or as a datetime, in UTC unless it has a time zone: the newest
            snapshot made by then.

    Raises:
        UnknownNameError: If there is no such tag.
        UnknownMomentError: If the time cannot be read, or the store is younger.
        StoreError: If more than one is given.
    """
    given = [name for name in (snapshot, tag, as_of) if name is not None]
    if len(given) > 1:
        raise StoreError(f"give one of snapshot, tag and as_of, got {len(given)} of them")
    if tag is not None:
        known = tags(repository)
        if tag not in known:
            raise UnknownNameError("tag", tag, known, repository.uri)
        return known[tag]
    if as_of is not None:
        return _made_by(repository, _in_utc(as_of))
    return snapshot or repository.snapshot_id()


def _in_utc(moment: datetime | str) -> datetime:
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError as error:
            raise UnknownMomentError(
                f"as_of {moment!r} is not a time; expected ISO 8601 as in 2026-01-31T12:00"
            ) from error
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _made_by(repository: Repository, moment: datetime) -> str:
    oldest = None
    for one in repository.icechunk.ancestry(branch=BRANCH):
        if one.written_at <= moment:
            return str(one.id)
        oldest = one.written_at
    raise UnknownMomentError(
        f"{repository.uri} has no snapshot made by {moment}: its oldest is of {oldest}"
    )
