"""Chunks of a store on a disk are read from their files, and are those that Icechunk gives."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.core.sync import sync

from store import fetch, open_store
from store.arrays import member
from store.errors import MissingChunkError
from store.fetch import EncodedChunks
from store.manifest_files import ChunkFiles
from store.pinned import model_group
from store.repository import Repository
from store.slab import slabs

STEPS = (512, 0, 16, 9, 1)
SITES = ("residual", "final_norm", "query")


@pytest.fixture(scope="module")
def filled(toy, tmp_path_factory):
    """Five steps: their chunks, each a file, are listed by three manifests of each site."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("store.configuration.INLINE_BYTES", 0)
        repository = toy.prepare(str(tmp_path_factory.mktemp("fetch") / "store"), SITES)
    for step in STEPS:
        toy.ingest(repository, step)
    return repository


@pytest.fixture
def copied(filled, tmp_path):
    """A store of its own that holds the same."""
    return Repository.open(shutil.copytree(filled.uri, tmp_path / "store"))


@pytest.fixture
def alone(monkeypatch):
    """Make whatever asks Icechunk for a chunk of activations fail."""

    async def refuse(self, indices):
        raise AssertionError(f"Icechunk was asked for {indices}")

    monkeypatch.setattr(EncodedChunks, "through_icechunk", refuse)


def site_array(repository, toy, site) -> zarr.Array:
    return member(model_group(repository.uri, repository.snapshot_id(), toy.PATH), site)


def written_indices(array):
    """The number of every chunk of the steps that are there, along each dimension."""
    counts = [-(-size // chunk) for size, chunk in zip(array.shape, array.chunks, strict=True)]
    return list(np.ndindex(len(STEPS), *counts[1:]))


@pytest.mark.parametrize("site", SITES)
def test_the_files_of_chunks_are_those_that_icechunk_reads(filled, toy, site):
    array = site_array(filled, toy, site)
    indices = written_indices(array)
    files = ChunkFiles(Path(filled.uri), filled.snapshot_id(), array.path)
    found = [files.find(index) for index in indices]
    assert len({file.path for file in found}) == len(indices)
    expected = sync(EncodedChunks(array, None).through_icechunk(indices))
    for file, encoded in zip(found, expected, strict=True):
        content = file.path.read_bytes()
        assert content[file.offset : file.offset + file.length] == encoded.tobytes()
    assert files.find((len(STEPS), *indices[0][1:])) is None


def test_reading_a_store_on_a_disk_asks_icechunk_for_no_chunk(filled, toy, alone):
    for slab in slabs(filled, toy.PATH, site="query"):
        whole = toy.values(slab.step, "query")[slab.depth]
        np.testing.assert_array_equal(
            np.concatenate([rows for _, rows in slab.blocks()], axis=1), whole
        )
        np.testing.assert_array_equal(slab.rows(np.array([40, 3])), whole[:, [40, 3]])


@pytest.mark.parametrize("chunks", [None, {"token": -1}])
@pytest.mark.parametrize(
    "key",
    [
        {},
        {"step": 1, "layer": 2},
        {"token": slice(5, 37)},
        {"token": slice(16, 32), "layer": [2, 0]},
        {"dim": slice(3, 9), "token": slice(0, 50)},
        {"token": [49, 0, 49], "dim": [1, 0]},
    ],
    ids=str,
)
def test_lazy_selections_of_a_store_on_a_disk(filled, toy, alone, key, chunks):
    lazy = open_store(filled.uri, chunks=chunks)[toy.PATH]["residual"]
    whole = np.stack([toy.values(step, "residual") for step in sorted(STEPS)])
    expected = xr.DataArray(whole, dims=lazy.dims).isel(key)
    np.testing.assert_array_equal(lazy.isel(key).values, expected.values)


def test_threads_that_read_side_by_side_keep_to_their_own_room(filled, toy, alone):
    every = slabs(filled, toy.PATH) * 4
    with ThreadPoolExecutor(8) as threads:
        read = threads.map(lambda slab: next(iter(slab.blocks(rows=64)))[1], every)
        for slab, values in zip(every, read, strict=True):
            np.testing.assert_array_equal(values, toy.values(slab.step, "residual")[slab.depth])


@pytest.fixture
def slow_disk(monkeypatch):
    """A disk that has to be waited for: nothing is in memory, then a bit at a time comes."""
    preadv = os.preadv

    def slow(descriptor, buffers, offset, flags=0):
        if flags:
            raise BlockingIOError
        return preadv(descriptor, [buffers[0][:1000]], offset)

    monkeypatch.setattr(os, "preadv", slow)


@pytest.mark.parametrize("rows", [16, 32, 64])
def test_a_disk_that_has_to_be_waited_for_is_told_what_comes_next(
    filled, toy, alone, slow_disk, monkeypatch, rows
):
    told, read_ahead = [], fetch._read_ahead

    def noted(file):
        told.append(file.path.name)
        read_ahead(file)

    monkeypatch.setattr(fetch, "_read_ahead", noted)
    (slab,) = slabs(filled, toy.PATH, steps=[9], layers=[2])
    blocks = slab.blocks(rows=rows)
    _, first = next(blocks)
    # What is read, and as much again where that is all that is left.
    assert len(set(told)) == min(2 * rows // 16, 4)
    values = np.concatenate([first, *(rows for _, rows in blocks)])
    np.testing.assert_array_equal(values, toy.values(9, "residual")[2])
    assert len(set(told)) == 4


def test_what_a_transaction_has_written_is_not_looked_for_in_a_snapshot(filled, toy):
    session, root = filled.write()
    array = root[f"{toy.PATH}/residual"]
    array[0, 2] = 7
    indices = [(0, 2, chunk, 0) for chunk in range(4)]
    found = list(EncodedChunks(array, Path(filled.uri)).fetch(indices))
    expected = sync(EncodedChunks(array, None).through_icechunk(indices))
    assert [encoded.tobytes() for encoded in found] == [each.tobytes() for each in expected]
    assert session.has_uncommitted_changes


def test_small_chunks_that_lie_in_manifests_are_left_to_icechunk(toy, tmp_path):
    repository = toy.prepare(str(tmp_path / "store"), ("attention_entropy",))
    toy.ingest(repository, 7)
    array = site_array(repository, toy, "attention_entropy")
    files = ChunkFiles(Path(repository.uri), repository.snapshot_id(), array.path)
    assert files.find((0,) * array.ndim) is None
    (slab, *_) = slabs(repository, toy.PATH, site="attention_entropy")
    np.testing.assert_array_equal(
        np.concatenate([rows for _, rows in slab.blocks()], axis=-1),
        toy.values(7, "attention_entropy")[slab.depth],
    )


def test_without_the_calls_of_linux_icechunk_reads(filled, toy, monkeypatch):
    monkeypatch.delattr(os, "preadv")
    array = site_array(filled, toy, "residual")
    asked, through = [], EncodedChunks.through_icechunk

    async def noted(self, indices):
        asked.extend(indices)
        return await through(self, indices)

    monkeypatch.setattr(EncodedChunks, "through_icechunk", noted)
    assert all(len(found) for found in EncodedChunks(array, Path(filled.uri)).fetch([(0, 0, 0, 0)]))
    assert asked == [(0, 0, 0, 0)]


def cut_in_half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def other_version(path):
    content = bytearray(path.read_bytes())
    content[36] = 2
    path.write_bytes(content)


def noise(path):
    content = path.read_bytes()
    path.write_bytes(content[:39] + bytes(reversed(content[39:])))


@pytest.mark.parametrize("damage", [Path.unlink, cut_in_half, other_version, noise])
@pytest.mark.parametrize("kind", ["snapshots", "manifests"])
def test_metadata_that_cannot_be_read_here_is_left_to_icechunk(copied, toy, kind, damage):
    for path in (Path(copied.uri) / kind).iterdir():
        damage(path)
    snapshot = Path(copied.uri, "refs", "branch.main", "ref.json").read_text().split('"')[3]
    files = ChunkFiles(Path(copied.uri), snapshot, f"{toy.PATH}/residual")
    assert files.find((0, 0, 0, 0)) is None


def test_a_chunk_deleted_while_its_store_is_read_is_missing(copied, toy, chunk_file):
    (slab,) = slabs(copied, toy.PATH, steps=[512], layers=[2])
    list(slab.blocks())
    chunk_file(copied, f"{toy.PATH}/residual/c/{slab.slot}/2/1/0").unlink()
    with pytest.raises(MissingChunkError, match="tokens 16 to 31: the chunk is missing"):
        list(slab.blocks())
