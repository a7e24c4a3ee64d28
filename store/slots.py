"""Reserving a step: the small transaction that gives one writer one slot of the step axis."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np
import numpy.typing as npt
import zarr

from .arrays import add_step_coordinates, grow, member, sites_of, step_capacity
from .cells import read_cells, read_texts, write_cells
from .claims import Claim, claim_slot, is_fresh
from .columns import Column, read_columns
from .errors import (
    ReservationLostError,
    StepReservedError,
    StoreError,
    UnknownNameError,
)
from .held_layers import (
    SITE_LAYERS,
    SiteLayers,
    axis_labels,
    chosen,
    decoded,
    encoded,
    hold_by_step,
    require_layers,
    united,
    without,
)
from .identity import JSON
from .messages import RESERVE, of_slot
from .repository import Repository
from .request import AlreadyStored, Request, Work, outstanding
from .schema import LAYER, STEP, STEP_COORDINATES
from .writers import disown, is_dead, new_writer

FREE: Final = -1
"""Value of ``step`` in a slot that nobody has reserved."""


@dataclass(frozen=True)
class Reservation:
    """One slot, given to one writer.

    Attributes:
        path: Path of the model's group.
        step: Training step.
        slot: Index on the step axis.
        writer: Place, process and random id; whoever finds another one here has lost the slot.
        sites: Sites to be written.
        layers: Layers or blocks to be written of each of them that has any.
        kept_sites: Sites stored before with the same identity, which stay as they are.
        kept_layers: Layers or blocks of them.
        dropped_sites: Sites stored before with another identity, which go.
        dropped_layers: Layers or blocks stored before that are not written anew, and go.
        n_tokens: Tokens that each of its sites is to have.
        held_tokens: Tokens, the first ones, that are stored and stay; 0 unless the step grows.
        replaces: Whether all of it is stored, and is written anew.
        claim: What keeps other writers away while this one lives.
    """

    path: str
    step: int
    slot: int
    writer: str
    sites: tuple[str, ...]
    layers: SiteLayers
    kept_sites: tuple[str, ...]
    kept_layers: SiteLayers
    dropped_sites: tuple[str, ...]
    dropped_layers: SiteLayers
    n_tokens: int
    held_tokens: int
    replaces: bool
    claim: Claim

    def is_partial(self, axes: Mapping[str, tuple[int, ...]]) -> bool:
        """Tell whether the step will lack some of the layers that there is room for."""
        return encoded(united(self.kept_layers, self.layers), axes) != ""

    @property
    def done(self) -> str:
        """What stands in place of ``writer`` once it has stored what it reserved the slot for."""
        return f"{self.writer}:stored"


def reserve(repository: Repository, request: Request) -> Reservation | AlreadyStored:
    """Reserve a slot for a step, or find that there is nothing left to store.

    Raises:
        UnknownNameError: If there is no such model group or site.
        IdentityConflictError: If the step is stored with another identity.
        StepReservedError: If a living writer is storing the same step.
    """
    attempts: list[Reservation] = []

    def change(root: zarr.Group) -> Reservation | AlreadyStored:
        while attempts:
            attempts.pop().claim.release()
        group = model_group(root, request.path, repository.uri)
        outcome = _reserve(repository, group, request)
        if isinstance(outcome, Reservation):
            attempts.append(outcome)
            if outcome.is_partial(axis_labels(group.attrs.asdict())):
                hold_by_step(root, group)
        return outcome

    try:
        return repository.update(of_slot(RESERVE, request.path, request.step), change)
    except BaseException:
        for attempt in attempts:
            disown(attempt.writer)
            attempt.claim.release()
        raise


def require_held(group: zarr.Group, reservation: Reservation) -> None:
    """Make sure that nobody took a reservation over.

    Raises:
        ReservationLostError: Otherwise.
    """
    (found,) = read_texts(group, reservation.slot, "writer")
    if found != reservation.writer:
        raise ReservationLostError(
            f"step {reservation.step} of {reservation.path} was taken over by {found or 'nobody'}"
        )


def renew(group: zarr.Group, reservation: Reservation) -> None:
    """Note that the writer of a reservation still lives.

    Raises:
        ReservationLostError: If another writer took it over.
    """
    require_held(group, reservation)
    write_cells(group, reservation.slot, {"reserved_at": now()})


def give_back(group: zarr.Group, reservation: Reservation) -> None:
    """Free the slot of a reservation, unless it is somebody else's or holds something."""
    slot = reservation.slot
    writer, complete = read_cells(group, slot, "writer", "complete")
    if writer == reservation.writer and not complete:
        write_cells(group, slot, {STEP: FREE, "writer": ""})


def model_group(root: zarr.Group, path: str, uri: str) -> zarr.Group:
    """Return the group of a model, or of one of its stacks.

    Raises:
        UnknownNameError: If the corpus, the model or the stack is not there.
    """
    group, where = root, uri
    for kind, name in zip(("corpus", "model", "stack"), path.split("/"), strict=False):
        child = group.get(name)
        if not isinstance(child, zarr.Group):
            raise UnknownNameError(kind, name, group.group_keys(), where)
        group, where = child, f"{kind} {name!r}"
    if STEP not in group:
        raise UnknownNameError("model or stack", path, group.group_keys(), where)
    return group


def now(timespec: str = "seconds") -> str:
    """Return the time as the store writes it: ISO 8601, UTC, by default in whole seconds."""
    return datetime.now(UTC).isoformat(timespec=timespec)


def _reserve(
    repository: Repository, group: zarr.Group, request: Request
) -> Reservation | AlreadyStored:
    add_step_coordinates(group)
    stored, work = AlreadyStored(request.path, request.step, ()), _whole(group, request)
    slot = _slot_of(group, request.step)
    if slot is not None and read_cells(group, slot, "complete") == [True]:
        stored, identity, held_tokens = _stored(group, request, slot, work.n_tokens)
        found = outstanding(request, work, stored, identity, held_tokens)
        if found is None:
            return stored
        work = found
    slot, claim = _claim(repository, group, request, slot)
    writer = new_writer()
    write_cells(group, slot, {STEP: request.step, "writer": writer, "reserved_at": now()})
    kept_layers = {site: own for site, own in stored.layers.items() if site in work.kept}
    replaced = {site: own for site, own in stored.layers.items() if site in work.layers}
    return Reservation(
        request.path,
        request.step,
        slot,
        writer,
        work.wanted,
        work.layers,
        work.kept,
        kept_layers,
        work.dropped,
        {} if work.kept else without(replaced, work.layers),
        work.n_tokens,
        work.held_tokens,
        bool(stored.sites) and not work.kept and not work.held_tokens,
        claim,
    )


def _whole(group: zarr.Group, request: Request) -> Work:
    """Return what is to be written if nothing is stored.

    Raises:
        UnknownNameError: If the group has no such site or layer.
        StoreError: If a site has none of the layers.
    """
    wanted = _wanted_sites(group, request)
    axes = axis_labels(group.attrs.asdict())
    require_layers(group, request.layers or ())
    layers = chosen(wanted, axes, axes[LAYER] if request.layers is None else request.layers)
    for site, labels in layers.items():
        if not labels:
            named = ", ".join(map(str, request.layers or axes[LAYER]))
            raise StoreError(f"{site} of {request.path} has no value at layer {named}")
    return Work(wanted, layers, (), (), member(group, "token_id").shape[0])


def _stored(
    group: zarr.Group, request: Request, slot: int, axis: int
) -> tuple[AlreadyStored, Mapping[str, JSON], int]:
    """Return what is stored in a slot, its identity, and how many tokens it has of the axis."""
    names = ("sites", SITE_LAYERS, "identity", "n_tokens")
    listed, cell, identity, count = read_cells(group, slot, *names)
    sites = tuple(str(listed).split())
    layers = decoded(str(cell), sites, axis_labels(group.attrs.asdict()))
    stored = AlreadyStored(request.path, request.step, sites, layers)
    return stored, json.loads(str(identity)), int(count) or axis


def _wanted_sites(group: zarr.Group, request: Request) -> tuple[str, ...]:
    known = sites_of(group)
    for name in request.sites or ():
        if name not in known:
            raise UnknownNameError("site", name, known, request.path)
    return known if request.sites is None else tuple(request.sites)


def _slot_of(group: zarr.Group, step: int) -> int | None:
    if step < 0:
        raise StoreError(f"a training step is 0 or more, got {step}")
    (slots,) = np.nonzero(_steps(group) == step)
    return int(slots[0]) if len(slots) else None


def _steps(group: zarr.Group) -> npt.NDArray[np.generic]:
    column = Column(group.path, STEP_COORDINATES[STEP], step_capacity(group))
    return read_columns(group.store, [column])[0]


def _claim(
    repository: Repository, group: zarr.Group, request: Request, slot: int | None
) -> tuple[int, Claim]:
    """Claim the slot of the step, or else any free one, growing the axis when there is none."""
    if slot is not None:
        reserved_at, writer = read_texts(group, slot, "reserved_at", "writer")
        claim = claim_slot(repository.location, request.path, slot)
        (complete,) = read_cells(group, slot, "complete")
        fresh = is_fresh(repository.location, reserved_at, request.takeover_after)
        fresh = fresh and not is_dead(writer)
        if claim is not None and (complete or not fresh):
            return slot, claim
        if claim is not None:
            claim.release()
        raise StepReservedError(
            f"step {request.step} of {request.path} is being stored by {writer} since"
            f" {reserved_at}. Wait for it, or end that process"
        )
    (free,) = np.nonzero(_steps(group) == FREE)
    for candidate in map(int, free):
        claim = claim_slot(repository.location, request.path, candidate)
        if claim is not None:
            return candidate, claim
    candidate = step_capacity(group)
    size = group.attrs["step_capacity"]
    assert isinstance(size, int)
    grow(group, size)
    claim = claim_slot(repository.location, request.path, candidate)
    if claim is None:
        raise StepReservedError(f"every slot of {request.path} is claimed; try again")
    return candidate, claim
