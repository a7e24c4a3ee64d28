"""What a writer asks for, and what is left to do of it where the step is stored already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from .errors import IdentityConflictError
from .held_layers import SiteLayers, without
from .identity import JSON, step_difference


@dataclass(frozen=True)
class Request:
    """What a writer wants to store.

    Attributes:
        path: Path of the model's group, ``CORPUS/MODEL`` or ``CORPUS/MODEL/STACK``.
        step: Training step.
        identity: Everything that changes the values, except the list of sites.
        sites: Sites to store, None for every site of the group.
        layers: Layers to store, and blocks by the layers they give; None for all of the group.
        supersede: Whether something else stored under the same step is replaced.
        rewrite: Whether what is stored with the same identity is written anew.
        grown_from: Identities of the same step over what the corpus was before it grew.
        takeover_after: Age from which a reservation in an object store counts as abandoned.
    """

    path: str
    step: int
    identity: Mapping[str, JSON]
    sites: Sequence[str] | None
    layers: Sequence[int] | None
    supersede: bool
    rewrite: bool
    grown_from: Sequence[Mapping[str, JSON]]
    takeover_after: timedelta


@dataclass(frozen=True)
class AlreadyStored:
    """The answer to a reservation of what is there already, with the same identity.

    Attributes:
        path: Path of the model's group.
        step: Training step.
        sites: Sites stored for it.
        layers: Layers or blocks stored of each site that has them.
    """

    path: str
    step: int
    sites: tuple[str, ...]
    layers: SiteLayers = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """What is to be done about a step.

    Attributes:
        wanted: Sites to be written.
        layers: Layers or blocks to be written of each of them that has any.
        kept: Sites stored before that stay, those among them that get more layers included.
        dropped: Sites stored before that go.
        n_tokens: Tokens that each site written is to have.
        held_tokens: Tokens of them that are stored and stay.
    """

    wanted: tuple[str, ...]
    layers: SiteLayers
    kept: tuple[str, ...]
    dropped: tuple[str, ...]
    n_tokens: int
    held_tokens: int = 0


def outstanding(
    request: Request,
    whole: Work,
    stored: AlreadyStored,
    identity: Mapping[str, JSON],
    held_tokens: int,
) -> Work | None:
    """Return what is left to do about a step that is stored, None for nothing.

    Args:
        request: What is asked for.
        whole: What would be done if nothing were stored.
        stored: What is stored.
        identity: Identity it is stored with.
        held_tokens: Number of tokens stored.

    Raises:
        IdentityConflictError: If it is stored with another identity, and is to stay.
    """
    differences = step_difference(identity, request.identity)
    grows = any(not step_difference(identity, former) for former in request.grown_from)
    if grows and not request.rewrite:
        return Work(stored.sites, stored.layers, (), (), whole.n_tokens, held_tokens)
    if differences and not (request.supersede or grows):
        raise IdentityConflictError(
            f"step {request.step} of {request.path}",
            differences,
            "Store it under another model name (--name), or supersede what is stored (--supersede)",
        )
    if request.rewrite or differences:
        dropped = tuple(name for name in stored.sites if name not in whole.wanted)
        # What is damaged is all to be written anew, whichever layers were asked for.
        layers = {**whole.layers, **stored.layers} if request.rewrite else whole.layers
        return replace(whole, layers=layers, dropped=dropped)
    missing = without(whole.layers, stored.layers)
    wanted = tuple(name for name in whole.wanted if name not in stored.sites or name in missing)
    return Work(wanted, missing, stored.sites, (), held_tokens) if wanted else None
