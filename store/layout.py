"""Chunk sizes, codec and checksums of the arrays: how values become objects in the store."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Literal

import google_crc32c
import numpy as np
import numpy.typing as npt
import zarr.codecs
from zarr.abc.codec import BytesBytesCodec

from .codec import DEFAULT_CODEC, Codec
from .schema import BLOCK, LAYER, STEP, TOKEN, Variable

TARGET_CHUNK_BYTES: Final = 4 << 20
"""Least size of a chunk of a residual stream; below 1 MiB the cost a byte rises steeply."""

MOST_CHUNK_BYTES: Final = 32 << 20
"""Largest size of a chunk of any site when the arrays of a model are first created."""

_SHUFFLES: Final[dict[Codec, Literal["shuffle", "bitshuffle"]]] = {
    "zstd": "shuffle",
    "lz4": "bitshuffle",
}
"""What goes before each compressor: where bytes, or bits, of one significance lie together."""

TEXTS_PER_CHUNK: Final = 1024
TOKENS_PER_CHUNK: Final = 1 << 20
BYTES_PER_CHUNK: Final = 4 << 20


def chunk_rows(width: int, n_tokens: int, widest: int = 0) -> int:
    """Return how many rows (tokens) one chunk of a model's arrays holds.

    The smallest power of two whose rows of ``width`` float32 values make 4 MiB, but no more than
    the smallest power of two that holds all tokens, and than makes 32 MiB of the widest rows.

    Args:
        width: Length of a row of the residual stream.
        n_tokens: Number of tokens of the model's token axis.
        widest: Values of a row of the site that has the most, where that is known.

    Raises:
        ValueError: If either is not positive.
    """
    if width < 1 or n_tokens < 1:
        raise ValueError(f"width and n_tokens must be positive, got {width} and {n_tokens}")
    wanted = _power_of_two_at_least(math.ceil(TARGET_CHUNK_BYTES / (4 * width)))
    most = MOST_CHUNK_BYTES // (4 * max(widest, width))
    return min(wanted, _power_of_two_at_least(n_tokens), _power_of_two_at_most(most))


def _power_of_two_at_least(number: int) -> int:
    return 1 << (number - 1).bit_length()


def _power_of_two_at_most(number: int) -> int:
    return 1 << max(0, number.bit_length() - 1)


def token_chunks(n_tokens: int, rows: int) -> int:
    """Return the number of chunks along the token axis; the last one may be partly filled."""
    return -(-n_tokens // rows)


def chunk_shape(variable: Variable, sizes: Mapping[str, int], rows: int) -> tuple[int, ...]:
    """Return the chunk shape of a site's array: one step, one layer or block, ``rows`` tokens.

    Args:
        variable: The site.
        sizes: Size of every dimension of the variable except ``step``.
        rows: Tokens in a chunk.
    """
    narrow = {STEP: 1, LAYER: 1, BLOCK: 1, TOKEN: rows}
    return tuple(narrow.get(name) or sizes[name] for name in variable.dims)


def activation_codecs(codec: Codec = DEFAULT_CODEC) -> tuple[BytesBytesCodec, ...]:
    """Return the codecs of an activation array: Blosc, then a CRC-32C of the encoded bytes.

    The explicit block size matters: Blosc's own choice costs 13-20 % of the ratio and more than
    half of the decoding speed. The CRC-32C lets any reader notice a damaged object by itself.

    Args:
        codec: What Blosc compresses with: ``zstd``, or ``lz4`` for readers that lack zstd.
    """
    blosc = zarr.codecs.BloscCodec(
        cname=codec, clevel=1, shuffle=_SHUFFLES[codec], typesize=4, blocksize=1 << 20
    )
    return blosc, zarr.codecs.Crc32cCodec()


def table_codecs() -> tuple[BytesBytesCodec, ...]:
    """Return the codecs of token coordinates and texts."""
    return (zarr.codecs.ZstdCodec(level=3),)


def checksum(values: npt.NDArray[np.float32]) -> int:
    """Return the CRC-32C recorded for one chunk.

    It covers the rows that exist, not the padding of the last chunk, as little-endian float32 in
    row-major order.

    Args:
        values: The chunk's values without the ``step`` axis, any shape.
    """
    contiguous = np.ascontiguousarray(values, dtype="<f4")
    return int(google_crc32c.value(contiguous.reshape(-1).view(np.uint8)))


def fill_value(variable: Variable) -> float | bool | str:
    """Return what a chunk that was never written reads as."""
    if variable.name == STEP:
        return -1
    if variable.dtype == "str":
        return ""
    fills: dict[str, float | bool] = {"f": math.nan, "b": False}
    return fills.get(np.dtype(variable.dtype).kind, 0)
