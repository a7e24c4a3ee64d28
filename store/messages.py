"""What commits say of themselves, a line each: the history of a store is made of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from .schema import LAYER, depth_dimension

if TYPE_CHECKING:
    from .slots import Reservation

_MOST_NUMBERS: Final = 6
_MOST_NAMES: Final = 3


RESERVE: Final = "reserve"
RENEW: Final = "still storing"
GIVE_UP: Final = "give up"
"""How the slot of a writer comes to be, is kept and is given back: nothing that is read changes."""


def of_slot(what: str, path: str, step: int) -> str:
    """Say what a writer did with its slot: one of the three above."""
    return f"{what} {path} step {step}"


def is_of_slot(message: str) -> bool:
    """Whether a commit was about the slot of a writer alone."""
    return message.startswith((f"{RESERVE} ", f"{RENEW} ", f"{GIVE_UP} "))


def stored_step(reservation: Reservation, n_blocks: int) -> str:
    """Say what a writer stored: sites with their layers, or the tokens by which a step grew.

    Args:
        reservation: What it reserved.
        n_blocks: Blocks of the model.
    """
    layers = reservation.layers
    sites = [site_name(site, layers.get(site, ()), n_blocks) for site in reservation.sites]
    what = ", ".join(sites)
    if reservation.held_tokens:
        what = f"{reservation.n_tokens - reservation.held_tokens:,} more tokens of {what}"
    elif reservation.kept_sites:
        what = f"{what} beside {', '.join(reservation.kept_sites)}"
    elif reservation.replaces:
        what = f"{what} in place of what was there"
    return f"store {reservation.path} step {reservation.step}: {what}"


def added_metrics(path: str, metrics: Sequence[str], steps: Sequence[int]) -> str:
    """Say which metrics of which steps were stored, by their number where they are many."""
    named = ", ".join(metrics) if len(metrics) <= _MOST_NAMES else f"{len(metrics)} metrics"
    return f"add {named} of {path}, {listed_steps(steps)}"


def dropped_sites(path: str, sites: Sequence[str], steps: Sequence[int]) -> str:
    """Say which activations were dropped."""
    return f"drop {', '.join(sites)} of {path}, {listed_steps(steps)}"


def listed_steps(steps: Sequence[int]) -> str:
    """Return ``step 3``, or ``steps 0,1,2``."""
    return f"{'step' if len(steps) == 1 else 'steps'} {listed(steps)}"


def listed(numbers: Sequence[int]) -> str:
    """Return numbers with commas between, the first, the last and how many where they are many."""
    if len(numbers) <= _MOST_NUMBERS:
        return ",".join(map(str, numbers))
    first = ",".join(map(str, numbers[: _MOST_NUMBERS - 2]))
    return f"{first},…,{numbers[-1]} ({len(numbers)})"


def site_name(site: str, layers: Sequence[int], n_blocks: int) -> str:
    """Return a site with its layers or blocks as ``--layers`` takes them, without if it has all.

    Args:
        site: Name of the site.
        layers: Layers or blocks of it, in ascending order.
        n_blocks: Blocks that there are.
    """
    first = 0 if depth_dimension(site) == LAYER else 1
    if list(layers) in ([], [*range(first, n_blocks + 1)]):
        return site
    starts = [number for number in layers if number - 1 not in layers]
    stops = [number + 1 for number in layers if number + 1 not in layers]
    runs = (f"{a}" if b == a + 1 else f"{a}:{b}" for a, b in zip(starts, stops, strict=True))
    return f"{site}[{','.join(runs)}]"
