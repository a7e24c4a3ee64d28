from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numcodecs import blosc

from store.blosc_blocks import decode_range


def encode(values, block_size=4096, codec=b"zstd", shuffle=blosc.SHUFFLE):
    encoded = blosc.compress(values, codec, 1, shuffle, block_size, 4)
    return np.frombuffer(encoded, np.uint8)


@settings(max_examples=60, deadline=None)
@given(
    n_blocks=st.integers(2, 6),
    extra=st.integers(0, 1023),
    codec=st.sampled_from([b"zstd", b"lz4"]),
    shuffle=st.sampled_from([blosc.SHUFFLE, blosc.BITSHUFFLE]),
    data=st.data(),
)
def test_any_range_is_what_the_whole_chunk_holds(n_blocks, extra, codec, shuffle, data):
    n = n_blocks * 1024 + extra
    values = np.round(np.random.default_rng(n).standard_normal(n), 1).astype(np.float32)
    encoded = encode(values, codec=codec, shuffle=shuffle)
    start = data.draw(st.integers(0, values.nbytes - 1))
    stop = data.draw(st.integers(start + 1, values.nbytes))
    found = decode_range(encoded, start, stop)
    block_size = int.from_bytes(encoded[8:12].tobytes(), "little")
    if found is None:
        full = values.nbytes // block_size * block_size
        assert stop > full or (start < block_size and stop > full - block_size)
    else:
        np.testing.assert_array_equal(found, values.view(np.uint8)[start:stop])


def test_blocks_in_the_middle_are_decoded_alone():
    values = np.arange(8 * 1024, dtype=np.float32)
    found = decode_range(encode(values), 3 * 4096 + 8, 4 * 4096 + 12)
    assert found is not None
    np.testing.assert_array_equal(found.view(np.float32), np.arange(3074, 4099))


def test_bytes_that_were_not_compressed_are_found_as_they_are():
    noise = np.random.default_rng(0).integers(0, 256, 16384, np.uint8).view(np.float32)
    encoded = np.frombuffer(blosc.compress(noise, b"zstd", 1, blosc.NOSHUFFLE, 4096, 4), np.uint8)
    assert encoded[2] & 2
    np.testing.assert_array_equal(
        decode_range(encoded, 5000, 5008), noise.view(np.uint8)[5000:5008]
    )


def test_a_chunk_of_one_block_is_decoded_whole():
    assert decode_range(encode(np.zeros(1024, np.float32)), 0, 8) is None


def test_a_header_that_is_not_the_chunks_is_refused():
    encoded = encode(np.zeros(8192, np.float32))
    with pytest.raises(ValueError, match=f"announces {len(encoded)} bytes, and there are"):
        decode_range(encoded[:-1], 0, 8)
