"""Counting the values of a stored site that are NaN or infinite."""

from __future__ import annotations

import numpy as np
import zarr

from .arrays import member
from .cells import read_cells
from .chunks import ActivationArray
from .errors import CorruptChunkError, MissingChunkError
from .held_layers import SITE_LAYERS, axis_labels, decoded
from .schema import site_variable
from .undefined import undefined_tokens


def count_nonfinite(group: zarr.Group, site: str, slot: int) -> int:
    """Return how many values of one step of a site are NaN or infinite, and not by definition.

    Chunks that are lost or damaged count nothing.

    Args:
        group: The model's group.
        site: Name of the array.
        slot: Index on the step axis.
    """
    count, cell = read_cells(group, slot, "n_tokens", SITE_LAYERS)
    array = ActivationArray(group, site, int(count) or member(group, "token_id").shape[0])
    layers = decoded(str(cell), [site], axis_labels(group.attrs.asdict()))
    depths: list[int | None] = [array.depth_of(label) for label in layers.get(site, ())]
    undefined = undefined_tokens(group, site_variable(site))
    total = 0
    for depth in depths or [None]:
        for start in range(0, array.n_tokens, array.rows):
            stop = min(start + array.rows, array.n_tokens)
            try:
                finite = np.isfinite(array.read(slot, depth, start, stop))
            except (MissingChunkError, CorruptChunkError):
                continue
            if undefined is not None:
                finite |= undefined[start:stop]
            total += int(np.count_nonzero(~finite))
    return total
