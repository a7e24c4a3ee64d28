"""Writing one step of one model: reserved, written by its one writer, and then there at once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from .errors import StepReservedError
from .identity import JSON
from .repository import Repository
from .request import AlreadyStored, Request
from .slots import reserve
from .step_writer import StepWriter

__all__ = ["AlreadyStored", "StepWriter", "reserve_step"]

TAKEOVER_AFTER: Final = timedelta(minutes=30)
"""Age from which a reservation in an object store counts as abandoned."""


def reserve_step(
    repository: Repository,
    path: str,
    step: int,
    *,
    identity: Mapping[str, JSON],
    sites: Sequence[str] | None = None,
    layers: Sequence[int] | None = None,
    supersede: bool = False,
    rewrite: bool = False,
    grown_from: Sequence[Mapping[str, JSON]] = (),
    allow_nonfinite: bool = False,
    wait: timedelta = timedelta(0),
    takeover_after: timedelta = TAKEOVER_AFTER,
) -> StepWriter | AlreadyStored:
    """Reserve a step and return its writer, or say that it is stored already.

    A slot whose writer died is taken over. Where a step is stored with the same identity but
    without some of the sites or layers, the writer is for those alone; where it is stored over what
    the corpus was before it grew, it is for the tokens that are new, of the sites stored.

    Args:
        repository: The store.
        path: Path of the model's group, ``CORPUS/MODEL`` or ``CORPUS/MODEL/STACK``.
        step: Training step of the checkpoint.
        identity: Everything that changes the values, except the list of sites.
        sites: Sites to store, every site of the group by default.
        layers: Layers to store, and blocks by the layers they give; all of the group by default.
        supersede: Replace what is stored under the step with another identity; it stays in the
            history.
        rewrite: Write anew what is stored with the same identity, because it is damaged.
        grown_from: Identities that the step has over what the corpus was before it grew.
        allow_nonfinite: Store NaN and infinity, and count them.
        wait: How long to wait for a living writer of the same step.
        takeover_after: Age from which a reservation in an object store counts as abandoned.

    Raises:
        UnknownNameError: If there is no such model group, site or layer.
        IdentityConflictError: If the step is stored with another identity.
        StepReservedError: If a living writer is storing the same step, and still was after
            waiting.
        StoreFullError: If the disk is full.
    """
    request = Request(
        path, step, identity, sites, layers, supersede, rewrite, grown_from, takeover_after
    )
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
