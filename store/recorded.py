"""What was recorded of the values of a site's chunks when they were written.

The CRC-32C at the end of an object proves its bytes, not that it lies in its own place: a whole
chunk of other rows passes. The checksum of its values does not.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import zarr

from .arrays import member, step_capacity
from .extent import token_counts
from .layout import checksum
from .schema import CHECKSUM_SUFFIX


class RecordedChecksums:
    """The checksums of one site in one snapshot, those of a step read once.

    Args:
        group: The model's group.
        site: Name of the site.
        rows: Tokens in a chunk.
        token_axis: Place of the tokens among the dimensions of a chunk.
    """

    def __init__(self, group: zarr.Group, site: str, rows: int, token_axis: int) -> None:
        name = site + CHECKSUM_SUFFIX
        self._array = member(group, name) if name in group else None
        self._group, self._rows, self._token_axis = group, rows, token_axis
        self._by_slot: dict[int, npt.NDArray[np.uint32]] = {}

    @property
    def exist(self) -> bool:
        """Whether there are any."""
        return self._array is not None

    def difference(
        self, slot: int, depth: int | None, number: int, chunk: npt.NDArray[np.float32]
    ) -> str | None:
        """Say how the values of a chunk differ from those that were written.

        Args:
            slot: Index along the step axis.
            depth: Index along the layer or block axis, None for a site without one.
            number: Number of the chunk along the token axis.
            chunk: The whole chunk as it was decoded (*inner_dims), padding included.

        Returns:
            What was found and what was recorded, None if they agree or nothing was recorded.
        """
        if self._array is None:
            return None
        if slot not in self._by_slot:
            self._by_slot[slot] = np.asarray(self._array[slot])
        outer = () if depth is None else (depth,)
        recorded = int(self._by_slot[slot][*outer, number])
        written = min(self._rows, int(self._counts[slot]) - number * self._rows)
        found = checksum(chunk[(slice(None),) * self._token_axis + (slice(written),)])
        if found == recorded:
            return None
        return f"values have CRC-32C {found:08x}, {recorded:08x} was recorded when written"

    @cached_property
    def _counts(self) -> npt.NDArray[np.int64]:
        """Tokens that each slot holds (slot,), which may be more than are shown."""
        group = self._group
        axis = member(group, "token_id").shape[0]
        return token_counts(group.store, group.path, step_capacity(group), axis)
