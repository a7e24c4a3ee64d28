"""Batches of rows for PyTorch: a ``torch.utils.data`` dataset over a loader of NumPy arrays.

It knows nothing of stores: any loader will do that gives one shard of an epoch, batch by batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Protocol, TypedDict

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import IterableDataset, get_worker_info

from flows.capture.errors import CaptureError


class Batch(Protocol):
    """Rows and their places, as arrays whose first dimension is the row."""

    @property
    def values(self) -> npt.NDArray[np.float32]:
        """The rows (row, dim)."""

    @property
    def step(self) -> npt.NDArray[np.int64]:
        """Training step of each (row,)."""

    @property
    def layer(self) -> npt.NDArray[np.int64]:
        """Layer of each (row,)."""

    @property
    def token(self) -> npt.NDArray[np.int64]:
        """Token index of each (row,)."""


class Loader(Protocol):
    """What gives one shard of an epoch; ``store.loader.RowLoader`` is one."""

    def batches(self, *, epoch: int, shard: int, shards: int) -> Iterable[Batch]:
        """Give the batches of one shard of one epoch."""


class Rows(TypedDict):
    """A batch as tensors.

    Attributes:
        values: The rows (row, dim), float32.
        step: Training step of each (row,), int64.
        layer: Layer of each (row,), int64.
        token: Token index of each (row,), int64.
    """

    values: torch.Tensor
    step: torch.Tensor
    layer: torch.Tensor
    token: torch.Tensor


class RowDataset(IterableDataset[Rows]):
    """Whole batches of rows as tensors, shared among ranks and DataLoader workers.

    Use it with ``DataLoader(dataset, batch_size=None)``, since it gives batches, not rows. With
    ``num_workers`` add ``multiprocessing_context="spawn"``: a process forked from one that has
    read a store cannot read it. Every worker has a buffer of its own.

    Where torch.distributed is initialized, each rank gets its part of every epoch. Parts differ
    by up to a chunk's rows: take as many batches as the smallest has.
    """

    def __init__(self, loader: Loader) -> None:
        """Take what the batches come from; a loader that can be pickled, for workers."""
        super().__init__()
        self._loader = loader
        # Shared with workers, who live on through all epochs if told to.
        self._epoch = torch.zeros((), dtype=torch.int64)
        self._epoch.share_memory_()  # type: ignore[no-untyped-call]  # torch does not annotate it
        self._rank, self._ranks = _rank()
        self._process = os.getpid()

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the following epoch, as with torch's distributed sampler."""
        self._epoch.fill_(epoch)

    def __iter__(self) -> Iterator[Rows]:
        worker = get_worker_info()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        if worker is not None and os.getpid() != self._process:
            raise CaptureError(
                "this worker was forked from a process that may have the store open, and could"
                ' wait for ever: give DataLoader multiprocessing_context="spawn"'
            )
        shard, shards = self._rank * workers + number, self._ranks * workers
        epoch = int(self._epoch)
        for batch in self._loader.batches(epoch=epoch, shard=shard, shards=shards):
            yield {
                "values": torch.from_numpy(batch.values),
                "step": torch.from_numpy(batch.step),
                "layer": torch.from_numpy(batch.layer),
                "token": torch.from_numpy(batch.token),
            }

    def __setstate__(self, state: dict[str, object]) -> None:
        # A spawned worker unpickles its copy; a forked one does not come here.
        self.__dict__.update(state)
        self._process = os.getpid()


def _rank() -> tuple[int, int]:
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1
