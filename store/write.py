"""Writing one step of one model: aligned blocks of rows, then everything at once, or nothing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

import icechunk
import numpy as np
import numpy.typing as npt
import zarr

from .arrays import member
from .cells import read_texts
from .completion import completed, counted, write_coordinates
from .encode import SiteWriter, erase
from .errors import (
    ConflictError,
    ReservationLostError,
    StepReservedError,
    StoreError,
    UnknownNameError,
)
from .identity import JSON
from .repository import Repository
from .schema import CHECKSUM_SUFFIX
from .slots import (
    AlreadyStored,
    Request,
    Reservation,
    give_back,
    model_group,
    renew,
    require_held,
    reserve,
)
from .translation import translated

TAKEOVER_AFTER: Final = timedelta(minutes=30)
"""Age from which a reservation in an object store counts as abandoned."""

COMMIT_TRIES: Final = 20


def reserve_step(
    repository: Repository,
    path: str,
    step: int,
    *,
    identity: Mapping[str, JSON],
    sites: Sequence[str] | None = None,
    supersede: bool = False,
    rewrite: bool = False,
    allow_nonfinite: bool = False,
    wait: timedelta = timedelta(0),
    takeover_after: timedelta = TAKEOVER_AFTER,
) -> StepWriter | AlreadyStored:
    """Reserve a step and return its writer, or say that it is stored already.

    A slot whose writer died is taken over. Where a step is stored with the same identity but
    without some of the sites, the writer is for those sites alone.

    Args:
        repository: The store.
        path: Path of the model's group, ``CORPUS/MODEL`` or ``CORPUS/MODEL/STACK``.
        step: Training step of the checkpoint.
        identity: Everything that changes the values, except the list of sites.
        sites: Sites to store, every site of the group by default.
        supersede: Replace what is stored under the step with another identity; it stays in the
            history.
        rewrite: Write anew what is stored with the same identity, because it is damaged.
        allow_nonfinite: Store NaN and infinity, and count them.
        wait: How long to wait for a living writer of the same step.
        takeover_after: Age from which a reservation in an object store counts as abandoned.

    Raises:
        UnknownNameError: If there is no such model group or site.
        IdentityConflictError: If the step is stored with another identity.
        StepReservedError: If a living writer is storing the same step, and still was after
            waiting.
        StoreFullError: If the disk is full.
    """
    request = Request(path, step, identity, sites, supersede, rewrite, takeover_after)
    deadline = time.monotonic() + wait.total_seconds()
    while True:
        try:
            outcome = reserve(repository, request)
        except StepReservedError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.2)
            continue
        if isinstance(outcome, AlreadyStored):
            return outcome
        return StepWriter(repository, outcome, request, allow_nonfinite=allow_nonfinite)


class StepWriter:
    """Takes the activations of one step, block by block, and publishes them in one commit.

    Used as a context manager it gives the slot back when the block is left without a commit.

    Attributes:
        path: Path of the model's group.
        step: Training step.
        sites: Sites to be written.
        chunk_rows: Tokens in a chunk; blocks start at multiples of it.
        n_tokens: Length of the token axis.
    """

    def __init__(
        self,
        repository: Repository,
        reservation: Reservation,
        request: Request,
        *,
        allow_nonfinite: bool,
    ) -> None:
        self.path, self.step, self.sites = reservation.path, reservation.step, reservation.sites
        self._repository = repository
        self._reservation = reservation
        self._request = request
        self._allow_nonfinite = allow_nonfinite
        self._renewed = time.monotonic()
        self._open = True
        try:
            self._session, self._group = self._begin()
            self._writers = {
                name: SiteWriter(self._group, name, reservation.slot, self.step)
                for name in self.sites
            }
            rows = self._group.attrs["chunk_rows"]
            assert isinstance(rows, int)
            self.chunk_rows = rows
            self.n_tokens = member(self._group, "token_id").shape[0]
        except BaseException:
            self.abandon()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.abandon()

    def write_block(self, site: str, token_start: int, values: npt.NDArray[np.float32]) -> None:
        """Store the rows of whole chunks of one site, for every layer or block at once.

        Args:
            site: One of :attr:`sites`.
            token_start: First token of the rows, a multiple of :attr:`chunk_rows`.
            values: The site's dimensions without ``step``, ``token`` narrowed to the rows: a
                multiple of :attr:`chunk_rows`, or up to the last token.

        Raises:
            InvalidBlockError: If the block does not fit, is misaligned, or was written before.
            NonFiniteError: If it holds NaN or infinity and they are not allowed.
            ReservationLostError: If another writer took the step over.
            StoreFullError: If the disk is full.
        """
        self._require_open()
        if site not in self._writers:
            raise UnknownNameError("site to be written", site, self.sites, f"this writer ({self})")
        self._renew()
        with translated(self._repository.location, needed=values.nbytes):
            self._writers[site].write(token_start, values, allow_nonfinite=self._allow_nonfinite)

    def commit(self, *, provenance: Mapping[str, JSON]) -> str:
        """Publish everything written, all of it or nothing.

        Args:
            provenance: Values of the coordinates in :data:`store.completion.PROVENANCE`.

        Returns:
            The id of the snapshot that holds the step.

        Raises:
            IncompleteError: If a chunk of a site was not written.
            ReservationLostError: If another writer took the step over.
            StoreFullError: If the disk is full; the store is as it was.
            StoreError: If the store cannot be reached. Abandon the writer and begin again.
        """
        self._require_open()
        for writer in self._writers.values():
            writer.require_complete()
        coordinates = completed(self._reservation, self._request.identity, provenance)
        coordinates |= counted(self._group, self._reservation, self._writers.values())
        message = f"store {self.path} step {self.step}"
        for _ in range(COMMIT_TRIES):
            with translated(self._repository.location):
                self._complete(coordinates)
            try:
                snapshot = self._repository.commit(self._session, message, rebase=True)
            except StoreError as error:
                if isinstance(error, ConflictError) and error.restructured:
                    self._start_over()
                    continue
                snapshot = self._acknowledged(error)
            self._close()
            return snapshot
        raise ConflictError(f"{message}: its arrays were resized again and again")

    def abandon(self) -> None:
        """Give the slot back; what was written is gone. Nothing happens after a commit."""
        if not self._open:
            return

        def change(root: zarr.Group) -> None:
            give_back(model_group(root, self.path, self._repository.uri), self._reservation)

        try:
            # A slot that stays reserved is taken over all the same, only later.
            with contextlib.suppress(StoreError, icechunk.IcechunkError, OSError):
                self._repository.update(f"give up {self.path} step {self.step}", change)
        finally:
            self._close()

    def _begin(self) -> tuple[icechunk.Session, zarr.Group]:
        session, root = self._repository.write()
        group = model_group(root, self.path, self._repository.uri)
        require_held(group, self._reservation)
        return session, group

    def _start_over(self) -> None:
        """Carry what was written into a new transaction, after the arrays were resized.

        Icechunk cannot move chunks over a change of their array's metadata, and merging a fork
        over one loses data (1.1.21), so the encoded chunks are stored again.
        """
        session, group = self._begin()
        with translated(self._repository.location):
            for writer in self._writers.values():
                writer.move_to(group)
        self._session, self._group = session, group

    def _complete(self, coordinates: Mapping[str, JSON]) -> None:
        slot = self._reservation.slot
        write_coordinates(self._group, slot, coordinates)
        for name, writer in self._writers.items():
            member(self._group, name + CHECKSUM_SUFFIX)[slot] = writer.checksums
        for name in self._reservation.dropped_sites:
            erase(self._group, name, slot)

    def _acknowledged(self, error: StoreError) -> str:
        """Return the newest snapshot if it holds this very commit: its answer may have got lost.

        Raises:
            ReservationLostError: If another writer has the slot.
            StoreError: The error itself otherwise.
        """
        try:
            snapshot = self._repository.snapshot_id()
            root = self._repository.read(snapshot)
            group = model_group(root, self.path, self._repository.uri)
            holder, sites = read_texts(group, self._reservation.slot, "writer", "sites")
        except (StoreError, icechunk.IcechunkError):
            raise error from None
        if holder == self._reservation.writer:
            if set(self.sites) <= set(sites.split()):
                return snapshot
            raise error
        raise ReservationLostError(
            f"step {self.step} of {self.path} was taken over by {holder or 'nobody'} while this"
            " writer was at it; nothing of this writer was stored"
        ) from error

    def _renew(self) -> None:
        """Tell the others from time to time that this writer lives, where they go by age."""
        location = self._repository.location
        elapsed = time.monotonic() - self._renewed
        on_disk = location.directory is not None or location.memory_lock is not None
        if on_disk or elapsed < self._request.takeover_after.total_seconds() / 4:
            return

        def change(root: zarr.Group) -> None:
            renew(model_group(root, self.path, self._repository.uri), self._reservation)

        self._repository.update(f"still storing {self.path} step {self.step}", change)
        self._renewed = time.monotonic()

    def _require_open(self) -> None:
        if not self._open:
            raise StoreError(f"{self} was committed or abandoned before; reserve the step again")

    def _close(self) -> None:
        self._open = False
        self._reservation.claim.release()

    def __repr__(self) -> str:
        return f"StepWriter({self.path!r}, step={self.step})"
