"""Taking the activations of one step, and publishing all of them at once."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

import icechunk
import numpy as np
import numpy.typing as npt
import zarr

from .cells import read_texts
from .completion import completed, counted, write_coordinates, write_layers
from .early_sync import EarlySync
from .encode import SiteWriter
from .encoded import STORED_AT_ONCE, STORED_ON_DISK_AT_ONCE
from .errors import (
    ConflictError,
    InvalidBlockError,
    ReservationLostError,
    StoreError,
    UnknownNameError,
)
from .heartbeat import Heartbeat
from .held_rows import HeldRows, held_rows
from .identity import JSON
from .messages import GIVE_UP, RENEW, of_slot, stored_step
from .repository import Repository
from .request import Request
from .site_depths import erase
from .slots import Reservation, give_back, model_group, renew, require_held
from .translation import translated
from .writers import disown

COMMIT_TRIES: Final = 20


class StepWriter:
    """Takes the activations of one step, block by block, and publishes them in one commit.

    Used as a context manager it gives the slot back when the block is left without a commit.

    Attributes:
        path: Path of the model's group.
        step: Training step.
        sites: Sites to be written.
        layers: Layers or blocks to be written of each of them that has any.
        chunk_rows: Tokens in a chunk; blocks start at multiples of it.
        n_tokens: Tokens that the step is to have.
        held_tokens: Tokens, the first ones, that are stored and stay: 0, unless the corpus grew.
    """

    def __init__(
        self,
        repository: Repository,
        reservation: Reservation,
        request: Request,
        *,
        allow_nonfinite: bool,
    ) -> None:
        self.path, self.step = reservation.path, reservation.step
        self.sites, self.layers = reservation.sites, reservation.layers
        self._repository = repository
        self._reservation = reservation
        self._request = request
        self._allow_nonfinite = allow_nonfinite
        self.n_tokens, self.held_tokens = reservation.n_tokens, reservation.held_tokens
        self._held: dict[str, HeldRows] = {}
        self._heartbeat = Heartbeat(repository.location, self._renew, request.takeover_after)
        directory = repository.location.directory
        at_once = STORED_AT_ONCE if directory is None else STORED_ON_DISK_AT_ONCE
        self._early_sync = EarlySync(directory)
        self._open = True
        try:
            self._session, self._group = self._begin()
            self._writers = {
                name: SiteWriter(
                    self._group,
                    name,
                    reservation.slot,
                    self.step,
                    layers=self.layers.get(name),
                    n_tokens=self.n_tokens,
                    held_tokens=self.held_tokens,
                    stored_at_once=at_once,
                    on_stored=self._early_sync.note,
                )
                for name in self.sites
            }
            rows = self._group.attrs["chunk_rows"]
            assert isinstance(rows, int)
            self.chunk_rows = rows
            self._heartbeat.start()
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

    def write_block(
        self, site: str, token_start: int, values: npt.NDArray[np.float32], *, depth: int = 0
    ) -> None:
        """Store the rows of whole chunks of one site, for every layer or block, or for some.

        Args:
            site: One of :attr:`sites`.
            token_start: First token of the rows, a multiple of :attr:`chunk_rows`.
            values: The site's dimensions without ``step``, layers or blocks narrowed to those of
                :attr:`layers`, ``token`` to the rows: a
                multiple of :attr:`chunk_rows`, or up to the last token.
            depth: Index of the first layer or block of the values.

        Raises:
            InvalidBlockError: If the block does not fit, is misaligned, or was written before.
            NonFiniteError: If it holds NaN or infinity and they are not allowed.
            ReservationLostError: If another writer took the step over.
            StoreFullError: If the disk is full.
        """
        self._require_open()
        if site not in self._writers:
            raise UnknownNameError("site to be written", site, self.sites, f"this writer ({self})")
        self._heartbeat.beat_if_due()
        if 0 <= token_start < self.held_tokens and site not in self._held:
            raise InvalidBlockError(
                f"tokens from {token_start} of {site} are stored: start with held_rows() of it"
            )
        with translated(self._repository.location, needed=values.nbytes):
            self._writers[site].write(
                token_start, values, allow_nonfinite=self._allow_nonfinite, depth=depth
            )

    def held_rows(self, site: str, *, whole: bool = False) -> npt.NDArray[np.float32]:
        """Return the rows that are stored, by default of the chunk in which the new tokens begin.

        The first block to be written starts with them, at the last multiple of
        :attr:`chunk_rows` that is not beyond :attr:`held_tokens`.

        Args:
            site: One of :attr:`sites`.
            whole: Return all rows that are stored.

        Raises:
            MissingChunkError: If they are lost.
            CorruptChunkError: If they are damaged.
        """
        if whole:
            return held_rows(self._group, site, self._reservation, whole=True).values
        self._held[site] = held_rows(self._group, site, self._reservation)
        return self._held[site].values

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
        request = self._request
        coordinates = completed(
            self._reservation, request.identity, provenance, rewrite=request.rewrite
        )
        coordinates |= counted(
            self._group, self._reservation, self._writers.values(), self._held.values()
        )
        n_blocks = self._group.attrs["n_blocks"]
        assert isinstance(n_blocks, int)
        message = stored_step(self._reservation, n_blocks)
        for _ in range(COMMIT_TRIES):
            with translated(self._repository.location):
                self._complete(coordinates)
                self._early_sync.finish()
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

        disown(self._reservation.writer)
        try:
            # A slot that stays reserved is taken over all the same, elsewhere only later.
            with contextlib.suppress(StoreError, icechunk.IcechunkError, OSError):
                self._repository.update(of_slot(GIVE_UP, self.path, self.step), change)
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
        write_layers(self._group, self._reservation)
        for writer in self._writers.values():
            writer.record()
        for name in self._reservation.dropped_sites:
            erase(self._group, name, slot)
        for name, layers in self._reservation.dropped_layers.items():
            erase(self._group, name, slot, layers)

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
            (holder,) = read_texts(group, self._reservation.slot, "writer")
        except (StoreError, icechunk.IcechunkError):
            raise error from None
        if holder == self._reservation.done:
            return snapshot
        if holder == self._reservation.writer:
            raise error
        raise ReservationLostError(
            f"step {self.step} of {self.path} was taken over by {holder or 'nobody'} while this"
            " writer was at it; nothing of this writer was stored"
        ) from error

    def _renew(self) -> None:
        def change(root: zarr.Group) -> None:
            renew(model_group(root, self.path, self._repository.uri), self._reservation)

        self._repository.update(of_slot(RENEW, self.path, self.step), change)

    def _require_open(self) -> None:
        if not self._open:
            raise StoreError(f"{self} was committed or abandoned before; reserve the step again")

    def _close(self) -> None:
        self._open = False
        self._heartbeat.stop()
        self._reservation.claim.release()

    def __repr__(self) -> str:
        return f"StepWriter({self.path!r}, step={self.step})"
