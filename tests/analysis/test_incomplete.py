"""A layer of which a chunk is gone or damaged is an error that names it, never zeros."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import dask
import numpy as np
import pytest
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from analysis import compute
from analysis.compute import measure
from store.errors import CorruptChunkError, MissingChunkError
from store.metrics import read_metrics

LAYER, CHUNK = 1, 5
METRICS = ["average_cosine", "two_nn"]


def file_of(stored, key: str) -> Path:
    """Find the object of a chunk on disk, by the key Zarr gives it."""
    encoded = sync(stored.repository.read().store.get(key, default_buffer_prototype())).to_bytes()
    files = (Path(stored.repository.uri) / "chunks").rglob("*")
    (path,) = (path for path in files if path.is_file() and path.read_bytes() == encoded)
    return path


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("scheduler", "damage", "expected"),
    [
        ("threads", Path.unlink, MissingChunkError),
        ("threads", halve, CorruptChunkError),
        ("threads", zeros, CorruptChunkError),
        ("local:1", Path.unlink, MissingChunkError),
    ],
)
def test_nothing_of_an_incomplete_layer_is_stored(
    tmp_path: Path,
    make_stored: Callable,
    monkeypatch: pytest.MonkeyPatch,
    scheduler: str,
    damage: Callable[[Path], None],
    expected: type[Exception],
) -> None:
    monkeypatch.setattr("store.configuration.INLINE_BYTES", 0)
    monkeypatch.setattr(compute, "BATCH_BYTES", 1)
    stored = make_stored(str(tmp_path / "store"))
    damage(file_of(stored, f"{stored.path}/residual/c/0/{LAYER}/{CHUNK}/0"))
    told = rf"{stored.path}: residual, step 0, layer {LAYER}, tokens {64 * CHUNK} to "
    with dask.config.set(num_workers=1), pytest.raises(expected, match=told):
        measure(stored.repository, stored.path, metrics=METRICS, scheduler=scheduler)
    kept = read_metrics(stored.repository, stored.path)
    if kept is not None:
        for name in METRICS:
            table = kept[name].sel(step=0).reindex(layer=range(3))
            assert table.sel(layer=LAYER).isnull().all()
    # What is whole can be measured, and the damaged layer alone is still refused.
    measure(stored.repository, stored.path, metrics=METRICS, layers=[0, 2])
    found = read_metrics(stored.repository, stored.path)
    assert found is not None
    assert np.isfinite(found["average_cosine"].sel(step=0, layer=[0, 2])).all()
    with pytest.raises(expected):
        measure(stored.repository, stored.path, metrics=METRICS, layers=[LAYER])
