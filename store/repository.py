"""Opening and creating a store at a URI, and the one way its history moves on: ``commit``."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

import icechunk
import zarr

from .branch_lock import BranchLock
from .configuration import BRANCH
from .container import configure_container, create_container, open_container
from .durable import publish, sync_filesystem
from .errors import (
    ConflictError,
    FormatVersionError,
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
    UnknownMomentError,
)
from .location import Location, check_vacant, locate
from .schema import FIRST_FORMAT, FORMAT_ATTRIBUTE, FORMAT_VERSION
from .translation import first_line, translated

UPDATE_TRIES = 100
CREATION_TRIES = 5

Result = TypeVar("Result")


class Repository:
    """An activation store; picklable, and cheap to open.

    Attributes:
        uri: Where the store is.
        location: The same, taken apart.
        read_only: Whether commits are refused.
    """

    def __init__(
        self, location: Location, opened: icechunk.Repository, *, read_only: bool = False
    ) -> None:
        self.uri = location.uri
        self.location = location
        self.read_only = read_only
        self.icechunk = opened
        self._branch_lock = BranchLock(location)

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen, (self.uri, self.read_only)

    def __repr__(self) -> str:
        return f"Repository({self.uri!r})"

    @classmethod
    def create(cls, uri: str | os.PathLike[str]) -> Repository:
        """Create an empty store.

        Raises:
            StoreExistsError: If there is a store, a file, or a directory that is not empty.
            StoreFullError: If the disk is full.
        """
        location = locate(uri)
        check_vacant(location)
        directory = location.directory
        if directory is None or directory.exists():
            return cls._create(location)
        # Made aside and renamed, a store on a disk is never half there, whoever else is at it.
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"cannot create a store at {directory}: {error.strerror} ({error.filename});"
                " choose a place that can be written to"
            ) from error
        with (
            translated(location),
            tempfile.TemporaryDirectory(
                prefix=f".{directory.name}-", dir=directory.parent
            ) as aside,
        ):
            made = Path(aside) / "store"
            cls._create(locate(made))
            try:
                made.rename(directory)
            except OSError as error:
                raise StoreExistsError(
                    f"cannot create a store at {directory}: something was put there meanwhile"
                ) from error
        return cls._open(location, read_only=False)

    @classmethod
    def open(cls, uri: str | os.PathLike[str], *, read_only: bool = False) -> Repository:
        """Open a store.

        Raises:
            StoreNotFoundError: If there is none: the message says what there is instead.
            FormatVersionError: If it was written in a newer format.
        """
        repository = cls._open(locate(uri), read_only=read_only)
        version = repository._format_version()
        if version is None:
            raise StoreNotFoundError(
                f"no store at {repository.uri}: it is an Icechunk repository, but its root group"
                f" has no attribute {FORMAT_ATTRIBUTE!r}, so it is not an activation store"
            )
        if version > FORMAT_VERSION:
            raise FormatVersionError(
                f"the store at {repository.uri} has format {version}; this version of actlas"
                f" reads formats up to {FORMAT_VERSION}. Upgrade actlas"
            )
        return repository

    @classmethod
    def open_or_create(cls, uri: str | os.PathLike[str]) -> Repository:
        """Open the store, or create it where there is nothing or an empty directory.

        Processes may race for it: one creates, the others open.
        """
        for _ in range(CREATION_TRIES):
            with contextlib.suppress(StoreExistsError):
                return cls.create(uri)
            # What is there may be half of what another process is creating.
            with contextlib.suppress(StoreNotFoundError):
                repository = cls._open(locate(uri), read_only=False)
                if repository._is_blank():
                    repository._initialise()
                return cls.open(uri)
            time.sleep(0.05 if locate(uri).directory is not None else 0.5)
        return cls.open(uri)

    @classmethod
    def _create(cls, location: Location) -> Repository:
        repository = cls(location, create_container(location))
        repository._initialise()
        return repository

    @classmethod
    def _open(cls, location: Location, *, read_only: bool) -> Repository:
        return cls(location, open_container(location), read_only=read_only)

    def _initialise(self) -> None:
        """Write the configuration and the root group, unless another process just did."""
        with translated(self.location):
            with self.lock():
                if self._format_version() is not None:
                    return
                self.icechunk = configure_container(self.location)
            session = self.icechunk.writable_session(BRANCH)
            zarr.group(session.store, attributes={FORMAT_ATTRIBUTE: FIRST_FORMAT})
        if not session.has_uncommitted_changes:
            return  # Another process has committed the same since we looked.
        with contextlib.suppress(ConflictError):
            self.commit(session, "create the store", rebase=False)

    def _format_version(self) -> int | None:
        try:
            version = self.read().attrs.get(FORMAT_ATTRIBUTE)
        except FileNotFoundError:
            return None
        return version if isinstance(version, int) else None

    def _is_blank(self) -> bool:
        # Two are enough to know: each more is another read, and a store may have thousands.
        return len(list(itertools.islice(self.icechunk.ancestry(branch=BRANCH), 2))) == 1

    def snapshot_id(self) -> str:
        """Return the id of the newest snapshot."""
        return str(self.icechunk.lookup_branch(BRANCH))

    def read(self, snapshot: str | None = None) -> zarr.Group:
        """Return the root group as of a snapshot, the newest one by default; read-only.

        Raises:
            UnknownMomentError: If there is no such snapshot.
            StoreError: If the store cannot be read.
        """
        try:
            session = (
                self.icechunk.readonly_session(BRANCH)
                if snapshot is None
                else self.icechunk.readonly_session(snapshot_id=snapshot)
            )
        except (icechunk.IcechunkError, ValueError) as error:
            if snapshot is None:
                raise StoreError(f"cannot read {self.uri}: {first_line(error)}") from error
            raise UnknownMomentError(
                f"no snapshot {snapshot!r} in {self.uri}: {first_line(error)}"
            ) from error
        return zarr.open_group(session.store, mode="r")

    def write(self) -> tuple[icechunk.Session, zarr.Group]:
        """Start a transaction on the newest snapshot: the session and its root group.

        Raises:
            StoreError: If the store was opened read-only.
        """
        if self.read_only:
            raise StoreError(f"{self.uri} was opened read-only, so nothing can be written to it")
        with translated(self.location):
            session = self.icechunk.writable_session(BRANCH)
        return session, zarr.open_group(session.store, mode="r+")

    def lock(self) -> AbstractContextManager[None]:
        """Hold the right to move the branch of the store, as long as the context lasts.

        Raises:
            StoreError: On entering, if the store cannot be written to.
        """
        return self._branch_lock.hold()

    def commit(self, session: icechunk.Session, message: str, *, rebase: bool) -> str:
        """Publish a transaction: entirely and, on a local disk, durably, or not at all.

        Args:
            session: The transaction, from :meth:`write`; it is used up.
            message: One line for the history.
            rebase: Whether commits that came in between and touch other chunks are accepted.

        Returns:
            The id of the new snapshot.

        Raises:
            ConflictError: If a commit came in between and ``rebase`` is false, or touched the same.
            StoreFullError: If the disk is full; the store is as it was.
        """
        with translated(self.location):
            if self.location.directory is None:
                with self.lock():
                    solver = icechunk.ConflictDetector() if rebase else None
                    return str(session.commit(message, rebase_with=solver))
            return self._commit_on_disk(self.location.directory, session, message, rebase=rebase)

    def update(
        self, message: str | Callable[[Result], str], change: Callable[[zarr.Group], Result]
    ) -> Result:
        """Make a small change that depends on what the newest snapshot holds.

        Args:
            message: One line for the history, or what makes it of what ``change`` returned.
            change: Reads and writes below the root group it is given. It is called again, on a
                newer snapshot, when another commit came first; without changes nothing is
                committed.

        Returns:
            What ``change`` returned for the snapshot that its changes were committed on.

        Raises:
            ConflictError: If other commits came first a hundred times.
            StoreFullError: If the disk is full; the store is as it was.
        """
        for _ in range(UPDATE_TRIES):
            with self.lock():
                session, root = self.write()
                with translated(self.location):
                    result = change(root)
                if not session.has_uncommitted_changes:
                    return result
                told = message if isinstance(message, str) else message(result)
                with contextlib.suppress(ConflictError):
                    self.commit(session, told, rebase=False)
                    return result
            time.sleep(random.uniform(0, 0.1))  # noqa: S311 - spreads the rivals, hides nothing
        raise ConflictError(f"{told}: other commits to {self.uri} came first, again and again")

    def _commit_on_disk(
        self, directory: Path, session: icechunk.Session, message: str, *, rebase: bool
    ) -> str:
        # The bulk goes to the disk before the lock is taken, and only the few small objects of
        # the snapshot under it.
        if not self._branch_lock.is_held:
            sync_filesystem(directory)
        with self.lock():
            if session.snapshot_id != self.snapshot_id():
                if not rebase:
                    raise ConflictError(f"another commit to {self.uri} came first")
                session.rebase(icechunk.ConflictDetector())
            return publish(self.icechunk, session, directory, message)


create_store = Repository.create


def _reopen(uri: str, read_only: bool) -> Repository:
    return Repository.open(uri, read_only=read_only)
