"""Packing the numbers of a page: a few significant digits each, compressed, as text.

A float32 has 24 bits of precision, of which a figure shows ten. The rest is rounded away, and the
four bytes of all numbers are stored as four planes, so that bytes alike lie side by side: a value
then takes about two bytes and a standard error one. ``page/numbers.js`` is the reading half.
"""

from __future__ import annotations

import base64
import zlib
from typing import Final

import numpy as np
import numpy.typing as npt

VALUE_BITS: Final = 14
"""Bits kept after the leading one: a relative error below 2⁻¹⁵, so four digits are right."""

ERROR_BITS: Final = 6
"""The same for standard errors: below 1 %, where they themselves are uncertain by a quarter."""

COUNT_BITS: Final = 23
"""Counts stay whole: float32 holds every integer up to 2²⁴."""

_MANTISSA: Final = 23
_NAN: Final = 0x7FC00000


class NumberPool:
    """Collects arrays and hands out where in the pool each of them starts."""

    def __init__(self) -> None:
        self._words: list[npt.NDArray[np.uint32]] = []
        self._size = 0

    def add(self, values: npt.NDArray[np.floating], bits: int) -> int:
        """Append an array in row-major order.

        Args:
            values: Any shape; what is not finite becomes NaN.
            bits: Bits of precision to keep after the leading one.

        Returns:
            Position of its first number in the pool.
        """
        start = self._size
        self._words.append(_rounded(values.ravel(), bits))
        self._size += values.size
        return start

    def encode(self) -> str:
        """Return the whole pool as base64 of a zlib stream of four byte planes."""
        words = np.concatenate([*self._words, np.empty(0, np.uint32)]).astype(">u4")
        planes = words.view(np.uint8).reshape(-1, 4).T
        return base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode("ascii")


def _rounded(values: npt.NDArray[np.floating], bits: int) -> npt.NDArray[np.uint32]:
    """Round to the nearest float32 of so many bits; a carry moves on into the exponent."""
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    words: npt.NDArray[np.uint32] = single.view(np.uint32).copy()
    dropped = _MANTISSA - bits
    if dropped:
        words += np.uint32(1 << (dropped - 1))
        words &= np.uint32(0xFFFFFFFF ^ ((1 << dropped) - 1))
    words[~np.isfinite(words.view(np.float32)) | ~np.isfinite(single)] = _NAN
    return words
