"""The per-step coordinates that a finished step carries."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

import zarr

from .cells import read_cells, update_cells
from .encode import SiteWriter
from .errors import UnknownNameError
from .held_layers import SITE_LAYERS, axis_labels, encoded, united
from .held_rows import HeldRows
from .identity import JSON, canonical
from .schema import sites_among
from .slots import Reservation, now

PROVENANCE: Final = (
    "revision",
    "weights_sha256",
    "weight_files",
    "tokens_sha256",
    "source_dtype",
    "precision",
    "checkpoint",
    "loss",
    "versions",
)
"""Per-step coordinates that come from whoever ran the model."""


def completed(
    reservation: Reservation,
    identity: Mapping[str, JSON],
    provenance: Mapping[str, JSON],
    *,
    rewrite: bool = False,
) -> dict[str, JSON]:
    """Return what to record about a step besides what was counted while writing.

    Sites added to a step that was complete before leave its provenance as it was, but for the loss
    that comes with the losses of the tokens. A step written anew because it was damaged says when:
    what was computed from it before is stale.

    Raises:
        UnknownNameError: If ``provenance`` names something else than :data:`PROVENANCE`.
    """
    for name in provenance:
        if name not in PROVENANCE:
            raise UnknownNameError("provenance", name, PROVENANCE, "a step")
    sites = reservation.kept_sites + reservation.sites
    always: dict[str, JSON] = {
        "writer": reservation.done,
        "sites": " ".join(sites_among(sites)),
        "n_tokens": reservation.n_tokens,
    }
    if reservation.kept_sites:
        measured = "token_loss" in reservation.sites and "loss" in provenance
        return always | ({"loss": provenance["loss"]} if measured else {})
    return {
        **dict.fromkeys(PROVENANCE, ""),
        "loss": math.nan,
        **provenance,
        **always,
        "complete": True,
        "identity": dict(identity),
        "ingested_at": now(),
        # By it two repairs are told apart, which may come in one second.
        **({"rewritten_at": now("microseconds")} if rewrite else {}),
    }


def counted(
    group: zarr.Group,
    reservation: Reservation,
    writers: Iterable[SiteWriter],
    rewritten: Iterable[HeldRows],
) -> dict[str, JSON]:
    """Return the coordinates that count, summed over what was written now and what stays.

    Args:
        group: The model's group.
        reservation: The slot.
        writers: What was written to each site.
        rewritten: Rows that were stored before, and are among what was written now.
    """
    counts = {"nonfinite": 0, "stored_bytes": 0}
    if reservation.kept_sites or reservation.held_tokens:
        kept = read_cells(group, reservation.slot, *counts)
        counts = dict(zip(counts, map(int, kept), strict=True))
    for writer in writers:
        counts["nonfinite"] += writer.nonfinite
        counts["stored_bytes"] += writer.stored_bytes
    for rows in rewritten:
        counts["nonfinite"] -= rows.nonfinite
        counts["stored_bytes"] -= rows.stored_bytes
    return dict(counts)


def write_layers(group: zarr.Group, reservation: Reservation) -> None:
    """Write which layers a step holds from now on; nothing if it gets none."""
    if reservation.layers:
        held = united(reservation.kept_layers, reservation.layers)
        cell = encoded(held, axis_labels(group.attrs.asdict()))
        update_cells(group, reservation.slot, {SITE_LAYERS: cell})


def write_coordinates(group: zarr.Group, slot: int, coordinates: Mapping[str, JSON]) -> None:
    """Write per-step coordinates, empty ones only over others; objects become JSON text."""
    cells = {
        name: value if isinstance(value, str | int | float) else canonical(value)
        for name, value in coordinates.items()
    }
    update_cells(group, slot, cells)
