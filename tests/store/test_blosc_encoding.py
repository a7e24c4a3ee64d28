from __future__ import annotations

from pathlib import Path

import google_crc32c
import numpy as np
import pytest
import zarr
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from numcodecs import blosc
from zarr.buffer import default_buffer_prototype
from zarr.core.sync import sync

from store.blosc_blocks import decode_range
from store.blosc_encoding import FEWEST_BYTES, ChunkEncoding
from store.corpora import create_corpus
from store.create import ArraySpec, create_model
from store.errors import CorruptChunkError
from store.layout import activation_codecs
from store.repository import Repository
from store.schema import SITES, TOKEN_COORDINATES
from store.slab import slabs
from store.write import reserve_step

BLOCK = 1 << 16
"""Blocks as small as a chunk may be, so that small chunks have several."""


def encoding(cname="zstd", shuffle="shuffle", block_size=BLOCK):
    return ChunkEncoding(cname, 1, shuffle, 4, block_size)


def decoded(encoded, shape):
    body, crc = encoded[:-4], int.from_bytes(encoded[-4:], "little")
    assert google_crc32c.value(bytes(body)) == crc
    values = np.empty(shape, np.float32)
    blosc.decompress(body, values)
    return values


def by_blosc(values, block_size=BLOCK):
    return blosc.compress(values, b"zstd", 1, blosc.SHUFFLE, block_size, 4)


def activations(rows, width, seed=0):
    draw = np.random.default_rng(seed)
    values = draw.standard_normal((rows, width), dtype=np.float32)
    return values * np.exp(draw.normal(0, 0.5, width)).astype(np.float32)


def as_bfloat16(values):
    return (values.view(np.uint32) & 0xFFFF0000).view(np.float32)


def bits(draw, shape):
    return draw.integers(0, 1 << 32, shape, np.uint32).view(np.float32)


def zeros_beside_bits(draw, shape):
    values = bits(draw, shape)
    values[: shape[0] // 2] = 0
    return values


KINDS = {
    "float32": lambda draw, shape: draw.standard_normal(shape, dtype=np.float32),
    "bfloat16": lambda draw, shape: as_bfloat16(draw.standard_normal(shape, dtype=np.float32)),
    "float16": lambda draw, shape: draw.standard_normal(shape).astype(np.float16).astype("f4"),
    "any bits, NaN with payloads among them": bits,
    "bits that nothing makes shorter, in some blocks": zeros_beside_bits,
    "zeros": lambda draw, shape: np.zeros(shape, np.float32),
    "mostly zeros": lambda draw, shape: np.maximum(
        draw.standard_normal(shape, dtype=np.float32) - 1, 0
    ),
    "rows of a small vocabulary": lambda draw, shape: draw.standard_normal(
        (50, shape[1]), dtype=np.float32
    )[draw.integers(0, 50, shape[0])],
    "padding": lambda draw, shape: np.full(shape, np.nan, np.float32),
}


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    width=st.integers(1, 900),
    more=st.integers(0, 70_000),
    block_size=st.sampled_from([1 << 16, 1 << 17, 1 << 20, 40_000]),
    seed=st.integers(0, 9),
)
def test_any_reader_of_blosc_gets_the_same_bits(kind, width, more, block_size, seed):
    rows = -(-(FEWEST_BYTES // 4 + more) // width)
    values = KINDS[kind](np.random.default_rng(seed), (rows, width))
    chunk = encoding(block_size=block_size).encode(values)
    encoded = chunk.data
    found = decoded(encoded, values.shape)
    assert chunk.known_finite <= np.isfinite(values).all()
    np.testing.assert_array_equal(found.view(np.uint32), values.view(np.uint32))
    assert len(encoded) <= values.nbytes + 16 + 4
    theirs = by_blosc(values, block_size)
    if not (encoded[2] | theirs[2]) & 2:  # Neither is a bare copy.
        assert encoded[:12] == theirs[:12]  # All of the header but the length.


def with_a_value_of_more_bits(values):
    """Return values of bfloat16 but for one: a sample does not see it."""
    values[1000, 1] = np.nextafter(values[1000, 1], np.float32(9))
    return values


LONG = {
    "float32": lambda: activations(2048, 400),
    "bfloat16": lambda: as_bfloat16(activations(2048, 400)),
    "bfloat16 but for one": lambda: with_a_value_of_more_bits(as_bfloat16(activations(2048, 400))),
    "bfloat16, then float32": lambda: np.concatenate(
        [as_bfloat16(activations(2000, 400)), activations(48, 400)]
    ),
    "float16": lambda: activations(2048, 400).astype(np.float16).astype(np.float32),
    "subnormal": lambda: activations(2048, 400) * np.float32(1e-40),
    "infinite in places": lambda: np.where(activations(2048, 400) > 2, np.inf, np.float32(1)),
}


@pytest.mark.parametrize("kind", LONG)
def test_every_block_is_one_zstd_frame_of_all_its_bytes(kind):
    values = LONG[kind]()  # Planes are longer than a block of zstd may be, and the last one is cut.
    size = 1 << 20
    encoded = encoding(block_size=size).encode(values).data
    found = decoded(encoded, values.shape)
    np.testing.assert_array_equal(found.view(np.uint32), values.view(np.uint32))
    shuffled = values.reshape(-1).view(np.uint8)
    for number, start in enumerate(range(0, values.nbytes, size)):
        block = shuffled[start : start + size].reshape(-1, 4).T.tobytes()
        at = int.from_bytes(encoded[16 + 4 * number : 20 + 4 * number], "little")
        length = int.from_bytes(encoded[at : at + 4], "little")
        frame = encoded[at + 4 : at + 4 + length]
        if length < len(block):
            assert zstandard.get_frame_parameters(frame).content_size == len(block)
            assert zstandard.ZstdDecompressor().decompress(frame) == block
        else:
            assert frame == block
    assert len(encoded) < 1.001 * len(by_blosc(values, size))


@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf, 2.0**127, -(2.0**127)])
@pytest.mark.parametrize("place", [0, 300_000, -1])
def test_values_are_known_to_be_finite_only_where_they_are(value, place):
    values = as_bfloat16(activations(2048, 400))
    assert encoding(block_size=1 << 20).encode(values).known_finite
    values.reshape(-1)[place] = value
    assert not encoding(block_size=1 << 20).encode(values).known_finite


@pytest.mark.parametrize("source", ["float32", "bfloat16"])
def test_activations_take_no_more_room_than_by_blosc_itself(source):
    values = activations(4096, 384)
    values = as_bfloat16(values) if source == "bfloat16" else values
    size = 1 << 20
    encoded = encoding(block_size=size).encode(values).data
    assert len(encoded) < len(by_blosc(values, size))


def test_rows_that_repeat_are_searched_for():
    values = activations(100, 384)[np.random.default_rng(0).integers(0, 100, 2048)]
    size = 1 << 20
    encoded = encoding(block_size=size).encode(values).data
    assert encoded[:-4] == by_blosc(values, size)
    assert len(encoded) < 0.5 * values.nbytes


def test_padding_is_no_row_that_repeats():
    values = np.full((2048, 384), np.nan, np.float32)
    values[:300] = activations(300, 384)
    encoded = encoding().encode(values).data
    assert encoded[:-4] != by_blosc(values)
    assert len(encoded) < 1.01 * len(by_blosc(values))


def test_noise_is_copied_as_blosc_copies_it():
    values = bits(np.random.default_rng(0), (512, 256))
    encoded = encoding().encode(values).data
    assert encoded[:-4] == by_blosc(values)
    assert len(encoded) == values.nbytes + 16 + 4


def test_what_is_small_or_encoded_otherwise_is_left_to_blosc():
    small = activations(16, 384)
    assert encoding().encode(small).data[:-4] == by_blosc(small)
    values = activations(256, 384)
    theirs = blosc.compress(values, b"lz4", 1, blosc.BITSHUFFLE, BLOCK, 4)
    assert encoding("lz4", "bitshuffle").encode(values).data[:-4] == theirs


def test_single_blocks_can_be_decoded():
    values = activations(1024, 256)
    body = np.frombuffer(encoding().encode(values).data[:-4], np.uint8)
    start, stop = 200 * 1024, 203 * 1024
    found = decode_range(body, start, stop)
    assert found is not None
    np.testing.assert_array_equal(found, values.view(np.uint8).reshape(-1)[start:stop])


def test_zarr_reads_what_is_encoded_here():
    values = activations(2048, 384)
    store = zarr.storage.MemoryStore()
    array = zarr.create_array(
        store,
        shape=values.shape,
        chunks=values.shape,
        dtype="float32",
        compressors=activation_codecs(),
    )
    encoded = ChunkEncoding.of(array).encode(values).data
    sync(store.set("c/0/0", zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(encoded)))
    np.testing.assert_array_equal(array[:], values)


def stored(repository, toy, values):
    """Store values (layer, token, dim) as step 0 of a model of 128 rows a chunk."""
    n_layers, n_tokens, width = values.shape
    sizes = {"layer": n_layers, "token": n_tokens, "dim": width}
    columns = {name: np.zeros(n_tokens, item.dtype) for name, item in TOKEN_COORDINATES.items()}
    create_corpus(repository, toy.CORPUS, texts=["-"], sources=["-"], source_starts=[0])
    create_model(
        repository,
        toy.CORPUS.name,
        "wide",
        arrays=[ArraySpec(SITES["residual"], sizes)],
        tokens=columns,
        attributes={"n_blocks": n_layers - 1, "width": width, "chunk_rows": 128},
    )
    path = f"{toy.CORPUS.name}/wide"
    with reserve_step(repository, path, 0, identity={}) as writer:
        writer.write_block("residual", 0, values)
        writer.commit(provenance={})
    return path


@pytest.mark.parametrize("source", ["float32", "bfloat16", "rows of a small vocabulary"])
def test_a_step_of_such_chunks_is_the_same_to_every_reader(source, toy, memory_uri):
    """Chunks of 128 KiB, the last of them partly used, read by Zarr, as slabs, and row by row."""
    values = KINDS[source](np.random.default_rng(0), (2 * 300, 256)).reshape(2, 300, 256)
    repository = Repository.create(memory_uri)
    path = stored(repository, toy, values)
    group = repository.read()[path]
    np.testing.assert_array_equal(group["residual"][0], values)
    low, high = slabs(repository, path)
    np.testing.assert_array_equal(np.concatenate([rows for _, rows in high.blocks()]), values[1])
    wanted = np.array([299, 5, 130, 127])
    np.testing.assert_array_equal(low.rows(wanted), values[0, wanted])
    sizes = [
        sync(group.store.getsize(f"{path}/residual/c/0/{layer}/{chunk}/0"))
        for layer in range(2)
        for chunk in range(3)
    ]
    assert group["stored_bytes"][0] == sum(sizes)


@pytest.mark.parametrize("source", ["float32", "bfloat16"])
def test_a_flipped_bit_is_an_error_or_of_no_consequence(source, toy, tmp_path):
    """Wherever it is in a chunk: what is read whole is proven by the checksum of its values."""
    values = KINDS[source](np.random.default_rng(0), (1, 128, 256))
    repository = Repository.create(tmp_path / "store")
    path = stored(repository, toy, np.concatenate([values, values + 1]))
    slab = slabs(repository, path)[0]
    key, chunk = f"{path}/residual/c/0/0/0/0", default_buffer_prototype()
    sound = sync(repository.read().store.get(key, chunk)).to_bytes()
    (file,) = (file for file in (tmp_path / "store/chunks").iterdir() if file.read_bytes() == sound)
    outcomes = []
    draw = np.random.default_rng(1)
    for at in [*range(24), -1, *draw.integers(24, len(sound), 60).tolist()]:
        changed = bytearray(sound)
        changed[at] ^= 1 << int(draw.integers(8))
        file.write_bytes(changed)
        try:
            ((_, rows),) = slab.blocks()
        except CorruptChunkError as error:
            outcomes.append("checksum of its" in str(error) or "bytes are left of" in str(error))
        else:
            np.testing.assert_array_equal(rows, values[0])
            outcomes.append(None)
        with pytest.raises(CorruptChunkError):
            slab.rows(np.array([5]))
    assert False not in outcomes
    assert outcomes.count(True) > 70


def test_a_chunk_of_an_earlier_version_is_decoded_for_ever():
    """``data/chunk.blosc``: two blocks of square roots in bfloat16, as written in November 2026."""
    encoded = (Path(__file__).parent / "data" / "chunk.blosc").read_bytes()
    roots = as_bfloat16(np.sqrt(np.arange(16384, dtype=np.float32))).reshape(64, 256)
    np.testing.assert_array_equal(decoded(encoded, roots.shape), roots)
