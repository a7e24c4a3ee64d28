import asyncio
import pickle
import subprocess
import sys
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.buffer import default_buffer_prototype
from zarr.core.sync import sync

import store
from store.errors import (
    CorruptChunkError,
    IncompleteError,
    MissingChunkError,
    StoreError,
    UnknownNameError,
)
from store.fetch import EncodedChunks
from store.pinned import activation_array
from store.slab import slabs, token_table

SITES = ("residual", "final_norm", "query", "attention_entropy")


@pytest.fixture(scope="module")
def filled(toy):
    repository = toy.prepare("memory://slabs", SITES)
    for step in (512, 0, 16):
        toy.ingest(repository, step)
    toy.ingest(repository, 1000, sites=("residual",))
    return repository


def test_slabs_come_by_step_then_layer(filled, toy):
    found = slabs(filled, toy.PATH)
    assert [(slab.step, slab.depth) for slab in found] == [
        (step, layer) for step in (0, 16, 512, 1000) for layer in range(4)
    ]


def test_slabs_keep_the_order_asked_for(filled, toy):
    found = slabs(filled, toy.PATH, steps=[512, 0], layers=[3, 1])
    assert [(slab.step, slab.depth) for slab in found] == [(512, 3), (512, 1), (0, 3), (0, 1)]


def test_slabs_of_blocks_are_labelled_from_one(filled, toy):
    (slab,) = slabs(filled, toy.PATH, site="query", steps=[0], layers=[3])
    assert slab.depth == 2


def test_steps_stored_without_the_site_are_left_out(filled, toy):
    assert {slab.step for slab in slabs(filled, toy.PATH, site="query")} == {0, 16, 512}
    with pytest.raises(UnknownNameError, match=r"no step 1000 in .*site 'query'"):
        slabs(filled, toy.PATH, site="query", steps=[1000])


@given(rows=st.integers(1, 70))
@settings(max_examples=20, deadline=None)
def test_blocks_join_to_the_layer_whatever_their_size(filled, toy, rows):
    (slab,) = slabs(filled, toy.PATH, steps=[16], layers=[2])
    blocks = list(slab.blocks(rows=rows))
    starts = [start for start, _ in blocks]
    lengths = [len(values) for _, values in blocks]
    assert starts == [sum(lengths[:at]) for at in range(len(lengths))]
    assert all(length >= rows for length in lengths[:-1])
    joined = np.concatenate([values for _, values in blocks])
    np.testing.assert_array_equal(joined, toy.values(16, "residual")[2])


@given(indices=st.lists(st.integers(0, 49), max_size=80))
@settings(max_examples=30, deadline=None)
def test_rows_gather_any_indices_in_any_order(filled, toy, indices):
    (slab,) = slabs(filled, toy.PATH, steps=[512], layers=[1])
    at = np.array(indices, dtype=np.int64)
    np.testing.assert_array_equal(slab.rows(at), toy.values(512, "residual")[1][at])


def test_rows_read_each_chunk_once_and_no_other(filled, toy, monkeypatch):
    (slab,) = slabs(filled, toy.PATH, steps=[512], layers=[1])
    fetched = []
    fetch = EncodedChunks.through_icechunk

    async def counted(self, indices):
        fetched.extend(indices)
        return await fetch(self, indices)

    monkeypatch.setattr(EncodedChunks, "through_icechunk", counted)
    slab.rows(np.array([40, 3, 1, 40, 2, 33]))
    # Chunks hold 16 tokens: 1, 2, 3 lie in chunk 0 and 33, 40 in chunk 2.
    assert [chunk for *_, chunk, _ in fetched] == [0, 2]


@pytest.mark.parametrize("index", [-1, 50])
def test_rows_refuse_indices_outside_the_axis(filled, toy, index):
    (slab,) = slabs(filled, toy.PATH, steps=[0], layers=[0])
    with pytest.raises(IndexError, match=rf"from {index} to {index} .* expected 0 to 49"):
        slab.rows(np.array([index]))


def test_sites_without_depth_and_with_heads(filled, toy):
    (norm,) = slabs(filled, toy.PATH, site="final_norm", steps=[0])
    np.testing.assert_array_equal(norm.rows(np.arange(50)), toy.values(0, "final_norm"))
    assert (norm.dims, norm.shape, norm.n_tokens) == (("token", "dim"), (50, 64), 50)

    (query,) = slabs(filled, toy.PATH, site="query", steps=[0], layers=[2])
    expected = toy.values(0, "query")[1]
    joined = np.concatenate([values for _, values in query.blocks(rows=20)], axis=1)
    np.testing.assert_array_equal(joined, expected)
    np.testing.assert_array_equal(query.rows(np.array([49, 0])), expected[:, [49, 0]])
    assert (query.dims, query.shape) == (("head", "token", "head_dim"), (2, 50, 32))


def test_one_head_of_a_block(filled, toy):
    (query,) = slabs(filled, toy.PATH, site="query", steps=[0], layers=[2])
    head = type(query)(**{**vars(query), "head": 1})
    expected = toy.values(0, "query")[1, 1]
    np.testing.assert_array_equal(np.concatenate([rows for _, rows in head.blocks()]), expected)
    np.testing.assert_array_equal(head.rows(np.array([7])), expected[[7]])
    assert (head.dims, head.shape) == (("token", "head_dim"), (50, 32))


def test_a_site_of_one_number_a_token(filled, toy):
    (slab,) = slabs(filled, toy.PATH, site="attention_entropy", steps=[0], layers=[1])
    expected = toy.values(0, "attention_entropy")[0]
    np.testing.assert_array_equal(slab.rows(np.arange(10, 20)), expected[:, 10:20])


def test_unknown_names_point_at_near_ones(filled, toy):
    with pytest.raises(UnknownNameError, match=r"no step 17 in .*there are: 0, 16, 512, 1000"):
        slabs(filled, toy.PATH, steps=[17])
    with pytest.raises(UnknownNameError, match=r"no layer 9 .*there are: 0, 1, 2, 3"):
        slabs(filled, toy.PATH, layers=[9])
    with pytest.raises(UnknownNameError, match=r"no site 'residul' .*did you mean 'residual'"):
        slabs(filled, toy.PATH, site="residul")
    with pytest.raises(UnknownNameError, match=r"no model 'owner--tyo' in plays .*'owner--toy'"):
        slabs(filled, "plays/owner--tyo")
    with pytest.raises(UnknownNameError, match=r"no corpus 'play' in .*did you mean 'plays'"):
        slabs(filled, "play/owner--toy")
    with pytest.raises(UnknownNameError, match=r"no layers \[1\] in plays/owner--toy: final_norm"):
        slabs(filled, toy.PATH, site="final_norm", layers=[1])


def test_a_slab_reads_its_snapshot_whatever_comes_later(toy, memory_uri):
    repository = toy.prepare(memory_uri)
    toy.ingest(repository, 5)
    (before,) = slabs(repository, toy.PATH, layers=[1])
    toy.ingest(repository, 5, variant=1, supersede=True)
    (after,) = slabs(repository, toy.PATH, layers=[1])
    everything = np.arange(50)
    np.testing.assert_array_equal(before.rows(everything), toy.values(5, "residual", 0)[1])
    np.testing.assert_array_equal(after.rows(everything), toy.values(5, "residual", 1)[1])


def test_a_slab_reads_in_another_process(toy, disk_repository):
    toy.ingest(disk_repository, 7)
    (slab,) = slabs(disk_repository, toy.PATH, layers=[2])
    code = (
        "import pickle, sys; slab = pickle.load(sys.stdin.buffer);"
        "pickle.dump(slab.rows(__import__('numpy').arange(50)), sys.stdout.buffer)"
    )
    environment = {"PYTHONPATH": str(Path(store.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps(slab),
        capture_output=True,
        check=True,
        env=environment,
    )
    values = pickle.loads(done.stdout)
    np.testing.assert_array_equal(values, toy.values(7, "residual")[2])
    assert len(pickle.dumps(slab)) < 1000


def test_the_token_table_is_in_memory_with_the_attributes(filled, toy):
    table = token_table(filled.uri, toy.PATH, filled.snapshot_id())
    np.testing.assert_array_equal(table["position"], np.arange(50) % 25)
    assert table.attrs["n_blocks"] == toy.N_BLOCKS
    assert table["special"].dtype == bool


def everything(slab):
    return [values for _, values in slab.blocks(rows=1)]


def damaged_slab(toy, repository, chunk_file, damage):
    """Damage tokens 16 to 31 of layer 2 of step 7, and return the slab."""
    toy.ingest(repository, 7)
    (slab,) = slabs(repository, toy.PATH, layers=[2])
    path = chunk_file(repository, f"{toy.PATH}/residual/c/{slab.slot}/2/1/0")
    damage(path)
    return slab


PLACE = r"plays/owner--toy: residual, step 7, layer 2, tokens 16 to 31"


def test_a_lost_object_is_an_error_that_names_the_rows(toy, disk_repository, chunk_file):
    slab = damaged_slab(toy, disk_repository, chunk_file, Path.unlink)
    with pytest.raises(MissingChunkError, match=PLACE + ": the chunk is missing. Run `actlas"):
        everything(slab)
    with pytest.raises(IncompleteError, match=PLACE):
        slab.rows(np.array([20]))
    np.testing.assert_array_equal(slab.rows(np.array([0])), toy.values(7, "residual")[2][:1])


def test_a_chunk_that_was_never_written_is_an_error(toy, memory_uri):
    repository = toy.prepare(memory_uri)
    toy.ingest(repository, 7)
    repository.update(
        "lose a chunk",
        lambda root: sync(root.store.delete(f"{toy.PATH}/residual/c/0/2/1/0")),
    )
    (slab,) = slabs(repository, toy.PATH, layers=[2])
    with pytest.raises(MissingChunkError, match=PLACE):
        everything(slab)


def flip_byte(path):
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-7])


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [flip_byte, cut_short, empty])
def test_damaged_bytes_are_an_error_that_names_the_rows(toy, disk_repository, chunk_file, damage):
    slab = damaged_slab(toy, disk_repository, chunk_file, damage)
    with pytest.raises(CorruptChunkError, match=PLACE + r": the chunk is damaged \(.*Run `actlas"):
        everything(slab)
    with pytest.raises(CorruptChunkError, match=PLACE):
        slab.rows(np.array([31, 16]))


def test_a_chunk_sealed_around_nonsense_is_an_error(toy, memory_uri):
    repository = toy.prepare(memory_uri)
    toy.ingest(repository, 7)
    body = np.arange(64, dtype=np.uint8).tobytes()
    sealed = body + google_crc32c.value(body).to_bytes(4, "little")
    buffer = default_buffer_prototype().buffer.from_bytes(sealed)
    key = f"{toy.PATH}/residual/c/0/2/1/0"
    repository.update("write nonsense", lambda root: sync(root.store.set(key, buffer)))
    (slab,) = slabs(repository, toy.PATH, layers=[2])
    with pytest.raises(CorruptChunkError, match=PLACE):
        everything(slab)


@pytest.mark.parametrize(
    ("site", "chunk", "rows"), [("residual", "1/0", (16, 32)), ("query", "0/3/0", (48, 50))]
)
def test_a_whole_chunk_in_anothers_place_is_an_error(toy, memory_uri, site, chunk, rows):
    """What lies there is sound in itself; what was recorded is of the values of step 7."""
    repository = toy.prepare(memory_uri, SITES)
    for step in (7, 9):
        toy.ingest(repository, step)
    keys = [f"{toy.PATH}/{site}/c/{slot}/2/{chunk}" for slot in (0, 1)]

    def swap(root):
        buffers = [sync(root.store.get(key, default_buffer_prototype())) for key in keys]
        for key, buffer in zip(keys, reversed(buffers), strict=True):
            sync(root.store.set(key, buffer))

    repository.update("swap two chunks", swap)
    label = {"residual": 2, "query": 3}[site]
    found, recorded = (
        google_crc32c.value(toy.values(step, site)[2][..., slice(*rows), :].tobytes())
        for step in (9, 7)
    )
    said = (
        rf"{site}, step 7, \w+ {label}, tokens {rows[0]} to {rows[1] - 1}: .*"
        f"CRC-32C {found:08x}, {recorded:08x} was recorded"
    )
    (slab,) = slabs(repository, toy.PATH, site=site, steps=[7], layers=[label])
    with pytest.raises(CorruptChunkError, match=said):
        list(slab.blocks())
    with pytest.raises(CorruptChunkError, match=said):
        list(slab.stretch(rows[0] + 1, rows[1]))
    lazy = store.open_store(memory_uri)[toy.PATH][site].isel(step=0)[2]
    with pytest.raises(CorruptChunkError, match=said):
        lazy.load()


def test_a_chunk_whose_checksum_was_never_recorded_is_read(toy, memory_uri):
    repository = toy.prepare(memory_uri)
    toy.ingest(repository, 7)

    def forget(root):
        del root[toy.PATH]["residual_checksum"]

    repository.update("forget what was recorded", forget)
    (slab,) = slabs(repository, toy.PATH, layers=[2])
    np.testing.assert_array_equal(np.concatenate(everything(slab)), toy.values(7, "residual")[2])


def test_a_store_that_cannot_be_reached_is_not_called_damaged(filled, toy, monkeypatch):
    (slab,) = slabs(filled, toy.PATH, steps=[0], layers=[0])
    array = activation_array(filled.uri, slab.snapshot, toy.PATH, "residual")

    async def refuse(self, indices):
        return [TimeoutError("no answer") for _ in indices]

    monkeypatch.setattr(EncodedChunks, "through_icechunk", refuse)
    with pytest.raises(TimeoutError, match="no answer"):
        array.read(slab.slot, 0, 0, 50)


def test_arrays_in_another_encoding_are_refused(toy, memory_uri):
    repository = toy.prepare(memory_uri)
    toy.ingest(repository, 7)

    def replace(root):
        group = root[toy.PATH]
        shape = group["residual"].shape
        del group["residual"]
        group.create_array(
            "residual",
            shape=shape,
            chunks=(1, 1, 16, 64),
            dtype="float32",
            compressors=zarr.codecs.ZstdCodec(),
        )

    repository.update("use another codec", replace)
    with pytest.raises(StoreError, match=r"encoded by ZstdCodec; expected .*BloscCodec, Crc32c"):
        slabs(repository, toy.PATH)


def test_reading_inside_a_running_event_loop(filled, toy):
    (slab,) = slabs(filled, toy.PATH, steps=[0], layers=[0])

    async def read():
        return slab.rows(np.arange(50))

    np.testing.assert_array_equal(asyncio.run(read()), toy.values(0, "residual")[0])
