import math

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numcodecs import Blosc

from store.layout import (
    activation_codecs,
    checksum,
    chunk_rows,
    chunk_shape,
    fill_value,
    token_chunks,
)
from store.schema import SITES, STEP_COORDINATES


@pytest.mark.parametrize(
    ("width", "n_tokens", "rows"),
    [
        # 4 MiB hold 2730.7 rows of 384 float32 values, 1365.3 of 768 and 256 of 4096.
        (384, 100_000, 4096),
        (768, 100_000, 2048),
        (4096, 100_000, 256),
        # Never more than the power of two that holds all the tokens.
        (384, 1000, 1024),
        (384, 1024, 1024),
        (384, 1025, 2048),
        (1, 1, 1),
    ],
)
def test_chunk_rows(width, n_tokens, rows):
    assert chunk_rows(width, n_tokens) == rows


def test_wide_rows_make_chunks_of_fewer():
    # 12 heads and 512 keys are 24 KiB a row, of which 32 MiB hold 1365.
    assert chunk_rows(384, 100_000, 12 * 512) == 1024


@given(width=st.integers(1, 100_000), n_tokens=st.integers(1, 10**7))
def test_chunk_rows_is_the_least_power_of_two(width, n_tokens):
    rows = chunk_rows(width, n_tokens)
    assert rows & (rows - 1) == 0
    assert rows * width * 4 < 2 * 4 * 2**20 or rows == 1
    assert rows >= n_tokens or rows * width * 4 >= 4 * 2**20
    assert rows < 2 * n_tokens


def test_chunk_rows_needs_positive_sizes():
    with pytest.raises(ValueError, match="must be positive, got 0 and 5"):
        chunk_rows(0, 5)


@given(n_tokens=st.integers(1, 10_000), rows=st.integers(1, 10_000))
def test_token_chunks_cover_the_axis(n_tokens, rows):
    assert (
        (token_chunks(n_tokens, rows) - 1) * rows < n_tokens <= token_chunks(n_tokens, rows) * rows
    )


def test_chunk_shape_keeps_heads_together():
    sizes = {"block": 6, "head": 12, "token": 1000, "head_dim": 64}
    assert chunk_shape(SITES["query"], sizes, 256) == (1, 1, 12, 256, 64)


def test_checksum_is_of_little_endian_row_major_bytes():
    values = np.array([[1.0, -2.5], [math.inf, 0.0]], np.float32)
    # float32: 1.0 = 3f800000, -2.5 = c0200000, inf = 7f800000, each byte-swapped.
    expected = google_crc32c.value(bytes.fromhex("0000803f000020c00000807f00000000"))
    assert checksum(values) == expected
    assert checksum(values.astype(">f4")) == expected
    assert checksum(np.asfortranarray(values)) == expected


def test_fill_values():
    assert fill_value(STEP_COORDINATES["step"]) == -1
    assert fill_value(STEP_COORDINATES["revision"]) == ""
    assert fill_value(STEP_COORDINATES["complete"]) is False
    assert fill_value(STEP_COORDINATES["nonfinite"]) == 0
    assert math.isnan(fill_value(SITES["residual"]))


@pytest.mark.parametrize(("bits", "ratio"), [(16, 0.35), (0, 0.95)])
def test_rounded_values_take_a_third_of_their_bytes(bits, ratio):
    """Gaussian values, of which the lowest bits are zero, or are not.

    bfloat16 has 16 bits, of which the sign and 7 of the mantissa are noise and the 8 of the
    exponent hold two or three bits of it: at most 11 of 32 bits are left, a ratio of 0.34.
    """
    values = np.random.default_rng(0).standard_normal(1 << 20, dtype=np.float32)
    values = (values.view(np.uint32) >> bits << bits).view(np.float32)
    blosc, _ = activation_codecs()
    codec = Blosc(
        cname=blosc.cname.value,
        clevel=blosc.clevel,
        shuffle=Blosc.SHUFFLE,
        blocksize=blosc.blocksize,
    )
    assert len(codec.encode(values)) <= ratio * values.nbytes
