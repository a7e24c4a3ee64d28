"""How much of an export is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import xarray as xr

from store.errors import StoreError
from store.slab import Slab

Tell: TypeAlias = Callable[[int, int], None]
"""Takes the bytes of values just copied, and those of all there are."""

Floats: TypeAlias = npt.NDArray[np.float32]


def new_file(target: Path) -> Path:
    """Return a file that is to be written, and its folders made, unless it is there.

    Raises:
        StoreError: If it is: names that differ in case only are one on some disks.
    """
    if target.exists():
        raise StoreError(
            f"cannot export to {target.name} twice: this disk does not tell capitals from small"
            " letters, and two models or sites have names that differ in nothing else. Export them"
            " one by one"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def tell_nobody(_more: int, _total: int) -> None:
    """Take what nobody waits for."""


class Copied:
    """Counts the bytes of values that are copied, and tells them to whoever waits.

    Args:
        total: Bytes of all that is to be copied.
        tell: Called with more bytes that are copied, and the total; by several threads.
    """

    def __init__(self, total: int, tell: Tell) -> None:
        self._total = total
        self._tell = tell

    @classmethod
    def of_slabs(cls, slabs: Iterable[Slab], tell: Tell) -> Copied:
        """Return the count of an export slab by slab."""
        size = np.dtype(np.float32).itemsize
        return cls(sum(size * int(np.prod(slab.shape)) for slab in slabs), tell)

    @classmethod
    def of_datasets(cls, datasets: Iterable[xr.Dataset], tell: Tell) -> Copied:
        """Return the count of an export of lazy datasets."""
        arrays = (array for dataset in datasets for array in dataset.data_vars.values())
        return cls(sum(array.nbytes for array in arrays), tell)

    def add(self, values: npt.NDArray[np.generic]) -> None:
        """Note that values are copied."""
        self._tell(values.nbytes, self._total)

    def blocks(self, slab: Slab) -> Iterator[tuple[int, Floats]]:
        """Stream a slab as :meth:`Slab.blocks` does; a block counts when the next is asked for."""
        for start, block in slab.blocks():
            yield start, block
            self.add(block)

    def watched(self, dataset: xr.Dataset) -> xr.Dataset:
        """Return a dataset, still lazy, whose chunks count as they are read."""

        def note(chunk: Floats) -> Floats:
            self.add(chunk)
            return chunk

        return dataset.assign(
            {
                name: array.copy(
                    data=array.data.map_blocks(
                        note, name=f"copied-{array.data.name}", meta=array.data._meta
                    )
                )
                for name, array in dataset.data_vars.items()
            }
        )
