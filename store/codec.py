"""What activations may be compressed with: names alone, so that importing them costs nothing."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

Codec: TypeAlias = Literal["zstd", "lz4"]

CODECS: Final[tuple[Codec, ...]] = get_args(Codec)
DEFAULT_CODEC: Final[Codec] = "zstd"
