"""Products of a block of rows with itself, on a GPU where CuPy finds one and it is faster.

The first block of every width is multiplied on both, the time to copy it included; whichever is
faster takes the others of that width. CuPy multiplies float32 in full precision unless CUPY_TF32
asks for less, which would not do here.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from functools import cache
from types import ModuleType

from analysis.rows import Rows

Product = Callable[[Rows], Rows]

_chosen: dict[tuple[int, str], Product] = {}


def gram(rows: Rows) -> Rows:
    """Return XᵀX (dim, dim) of rows X (token, dim), in their precision."""
    if _gpu() is None:
        return on_cpu(rows)
    key = (rows.shape[1], rows.dtype.name)
    if key not in _chosen:
        _chosen[key] = min((on_cpu, on_gpu), key=lambda product: _seconds(product, rows))
    return _chosen[key](rows)


def on_cpu(rows: Rows) -> Rows:
    """Multiply with NumPy, which computes half of the product and mirrors it."""
    product: Rows = rows.T @ rows
    return product


def on_gpu(rows: Rows) -> Rows:
    """Multiply with CuPy."""
    cupy = _gpu()
    assert cupy is not None
    copied = cupy.asarray(rows)
    product: Rows = cupy.asnumpy(copied.T @ copied)
    return product


@cache
def _gpu() -> ModuleType | None:
    """Return CuPy where it is installed and sees a GPU."""
    try:
        cupy = importlib.import_module("cupy")
        return cupy if cupy.cuda.is_available() else None
    except ImportError:
        return None


def _seconds(product: Product, rows: Rows) -> float:
    product(rows)  # starts the device, and loads its kernels
    started = time.perf_counter()
    product(rows)
    return time.perf_counter() - started
