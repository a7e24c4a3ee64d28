"""The rows that a growing step has of the chunk in which its new tokens begin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import zarr

from .chunks import ActivationArray
from .schema import site_variable
from .slots import Reservation
from .undefined import undefined_tokens


@dataclass(frozen=True)
class HeldRows:
    """Rows that are stored, and have to be stored again with those that follow them.

    Attributes:
        values: The site's dimensions without ``step``, ``token`` narrowed to the rows.
        nonfinite: Number of them that are NaN or infinite.
        stored_bytes: Encoded bytes of the chunks that hold them.
    """

    values: npt.NDArray[np.float32]
    nonfinite: int
    stored_bytes: int


def held_rows(
    group: zarr.Group, site: str, reservation: Reservation, *, whole: bool = False
) -> HeldRows:
    """Read the rows that a step has, by default those of the last chunk that is not full.

    Args:
        group: The model's group.
        site: Name of the site.
        reservation: The slot, and how many of its tokens are held.
        whole: Read all rows that are held.

    Raises:
        MissingChunkError: If a chunk is lost.
        CorruptChunkError: If a chunk is damaged.
    """
    held = reservation.held_tokens
    array = ActivationArray(group, site, held)
    chunk, rest = divmod(held, array.rows)
    start = 0 if whole else held - rest
    deep = array.depth_dim is not None
    wanted = reservation.layers.get(site, ())
    depths: list[int | None] = [array.depth_of(label) for label in wanted] if deep else [None]
    layers = [array.read(reservation.slot, depth, start, held) for depth in depths]
    values = np.stack(layers) if deep else layers[0]
    finite = np.isfinite(values)
    undefined = undefined_tokens(group, site_variable(site))
    if undefined is not None:
        finite |= undefined[start:held] & np.isnan(values)
    sizes = [array.encoded_bytes(reservation.slot, depth, chunk) for depth in depths if rest]
    return HeldRows(values, int(np.count_nonzero(~finite)), sum(sizes))
