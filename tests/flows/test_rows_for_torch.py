"""Rows of a real store in batches for PyTorch, read by processes of a DataLoader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from torch.utils.data import DataLoader

from flows.capture.checkpoints import find_checkpoints
from flows.capture.dataset import RowDataset, Rows
from flows.corpora import Chunking, add_texts
from flows.ingestion import ingest_checkpoint
from store import open_store
from store.loader import load_rows

PATH = "cats/tiny"


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory, text: str, run_folder: Path) -> str:
    """A store with two steps of a model of three layers: six chunks to deal out."""
    uri = str(tmp_path_factory.mktemp("rows") / "store")
    add_texts(uri, "cats", {"cats": text}, chunking=Chunking("chars", 50), max_sequences=8)
    for checkpoint in find_checkpoints(str(run_folder), steps=[0, 10]):
        ingest_checkpoint(uri, checkpoint, "cats")
    return uri


def places(batch: Rows) -> list[tuple[int, ...]]:
    columns = (batch[name].tolist() for name in ("step", "layer", "token"))
    return list(zip(*columns, strict=True))


def test_spawned_workers_give_every_row_once_in_the_order_of_the_seed(uri: str) -> None:
    dataset = RowDataset(load_rows(uri, PATH, batch_rows=32, seed=3))
    loader = DataLoader(
        dataset,
        batch_size=None,
        num_workers=2,
        multiprocessing_context="spawn",
        persistent_workers=True,
    )
    stored = open_store(uri)[PATH].to_dataset().residual.load()
    every = [
        (step, layer, token)
        for step in (0, 10)
        for layer in range(3)
        for token in range(stored.sizes["token"])
    ]

    def epoch(number: int) -> list[tuple[int, ...]]:
        dataset.set_epoch(number)
        found = []
        for batch in loader:
            step, layer, token = (
                batch[name].numpy() // (10 if name == "step" else 1)
                for name in ("step", "layer", "token")
            )
            np.testing.assert_array_equal(batch["values"], stored.values[step, layer, token])
            found += places(batch)
        return found

    first, second, again = epoch(0), epoch(1), epoch(0)
    assert sorted(first) == sorted(second) == every
    assert again == first
    assert second != first
    alone = [place for batch in RowDataset(load_rows(uri, PATH, seed=3)) for place in places(batch)]
    assert sorted(alone) == every
