"""Which state of the store a command looks at."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from store.repository import Repository


@dataclass(frozen=True)
class Moment:
    """Which state of the store is meant, the newest when nothing is given.

    Attributes:
        snapshot: Id of a snapshot.
        tag: Name of a tag.
        as_of: Time whose newest snapshot is meant.
    """

    snapshot: str | None
    tag: str | None
    as_of: str | None

    def find(self, repository: Repository) -> str:
        """Return the id of the snapshot."""
        from store.history import find_snapshot

        given = self.snapshot, self.tag, self.as_of
        if sum(name is not None for name in given) > 1:
            raise click.UsageError("Give one of --snapshot, --tag and --as-of.")
        return find_snapshot(repository, snapshot=self.snapshot, tag=self.tag, as_of=self.as_of)


def moment_options(command: Callable[..., object]) -> Callable[..., object]:
    """Add ``--snapshot``, ``--tag`` and ``--as-of``; the command takes them as one ``moment``."""

    @click.option("--snapshot", metavar="ID", help="As of this snapshot of `actlas history`.")
    @click.option("--tag", metavar="NAME", help="As of the snapshot with this tag.")
    @click.option("--as-of", metavar="TIME", help="As of this time, ISO 8601, in UTC.")
    @functools.wraps(command)
    def with_moment(
        *, snapshot: str | None, tag: str | None, as_of: str | None, **others: object
    ) -> object:
        return command(moment=Moment(snapshot, tag, as_of), **others)

    return with_moment
