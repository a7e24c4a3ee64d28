"""Rows as tensors: shared among workers, which are never forked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from flows.capture.dataset import RowDataset
from flows.capture.errors import CaptureError


@dataclass(frozen=True)
class Batch:
    values: np.ndarray
    step: np.ndarray
    layer: np.ndarray
    token: np.ndarray


class Loader:
    """Twelve batches of one row, dealt out; the values say which epoch it is."""

    def batches(self, *, epoch, shard, shards):
        for token in range(shard, 12, shards):
            places = (np.array([number], np.int64) for number in (0, 1, token))
            yield Batch(np.full((1, 3), epoch, np.float32), *places)


def test_batches_are_tensors_of_the_epoch():
    dataset = RowDataset(Loader())
    dataset.set_epoch(4)
    batches = list(DataLoader(dataset, batch_size=None))
    assert [int(batch["token"]) for batch in batches] == list(range(12))
    assert batches[0]["values"].dtype == torch.float32
    assert batches[0]["values"].tolist() == [[4, 4, 4]]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_worker_refuses():
    loader = DataLoader(
        RowDataset(Loader()), batch_size=None, num_workers=1, multiprocessing_context="fork"
    )
    with pytest.raises(CaptureError, match="spawn"):
        next(iter(loader))
