"""``actlas`` run on a store with two steps of one small model and a metric."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from flows.capture.checkpoints import find_checkpoints
from flows.corpora import Chunking, add_texts
from flows.ingestion import ingest_checkpoint
from flows.measurement import MeasureOptions, find_targets, measure_target
from store.repository import Repository

Run = Callable[..., Result]


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory, text: str, run_folder: Path) -> Path:
    """Return a store with steps 0 and 10 of ``cats/tiny`` and their average cosines."""
    store = tmp_path_factory.mktemp("pristine") / "store"
    add_texts(
        str(store), "cats", {"cats.txt": text}, chunking=Chunking("chars", 50), max_sequences=8
    )
    for checkpoint in find_checkpoints(str(run_folder), steps=[0, 10]):
        ingest_checkpoint(str(store), checkpoint, "cats")
    (target,) = find_targets(Repository.open(store))
    measure_target(str(store), target, options=MeasureOptions(metrics=("average_cosine",)))
    return store


@pytest.fixture
def store(tmp_path: Path, pristine: Path) -> str:
    """Return a copy of that store, to be changed."""
    copy = tmp_path / "store"
    shutil.copytree(pristine, copy)
    return str(copy)


@pytest.fixture
def run(store: str, runner: Callable[[str], Run]) -> Run:
    """Return a function that runs ``actlas`` with arguments on the copy."""
    return runner(store)


@pytest.fixture
def damage(store: str) -> Callable[[str], None]:
    """Return a function that deletes a chunk of ``cats/tiny``, by the key Zarr gives it."""

    def delete(key: str) -> None:
        held = Repository.open(store).read().store
        encoded = sync(held.get(f"cats/tiny/{key}", default_buffer_prototype()))
        assert encoded is not None
        files = (path for path in (Path(store) / "chunks").rglob("*") if path.is_file())
        (file,) = (path for path in files if path.read_bytes() == encoded.to_bytes())
        file.unlink()

    return delete
