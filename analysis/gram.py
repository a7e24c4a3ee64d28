"""Products of a block of rows with itself, on a GPU where CuPy finds one and it is faster.

The first block of every width is multiplied on both, the time to copy it included; whichever is
faster takes the others of that width, unless a GPU's product is another one: CuPy multiplies
float32 in full precision unless CUPY_TF32 asks for less, which would not do here. Where a GPU
fails, NumPy takes over.
"""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Final

import numpy as np

from analysis.rows import Rows

Product = Callable[[Rows], Rows]

_LOG: Final = logging.getLogger("actlas.gpu")
_ROUNDINGS: Final = 8
"""Roundings of its precision, in units of the largest element, that a product may be off by."""

_chosen: dict[tuple[int, str], Product] = {}


def gram(rows: Rows) -> Rows:
    """Return XᵀX (dim, dim) of rows X (token, dim), in their precision."""
    if _gpu() is None:
        return on_cpu(rows)
    key = (rows.shape[1], rows.dtype.name)
    if key not in _chosen:
        _chosen[key] = _faster(rows)
    try:
        return _chosen[key](rows)
    except (RuntimeError, MemoryError) as error:
        _LOG.warning("the GPU failed (%s): products run on the CPU from here on", error)
        _chosen[key] = on_cpu
        return on_cpu(rows)


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


def _faster(rows: Rows) -> Product:
    """Return what multiplies these rows faster, NumPy where a GPU fails or gives something else."""
    try:
        gap = np.abs(on_gpu(rows) - on_cpu(rows)).max(initial=0.0)
        largest = np.square(rows, dtype=np.float64).sum(axis=0).max(initial=0.0)
        if not gap <= _ROUNDINGS * np.finfo(rows.dtype).eps * largest:
            _LOG.warning("the GPU's product is off by %.3g of %.3g: it is not used", gap, largest)
            return on_cpu
        return min((on_cpu, on_gpu), key=lambda product: _seconds(product, rows))
    except (RuntimeError, MemoryError) as error:
        _LOG.warning("the GPU failed (%s): products run on the CPU", error)
        return on_cpu


@cache
def _gpu() -> ModuleType | None:
    """Return CuPy where it is installed and sees a GPU."""
    try:
        cupy = importlib.import_module("cupy")
        return cupy if cupy.cuda.is_available() else None
    except (ImportError, OSError, RuntimeError) as error:
        # It may be installed for another version of CUDA, or on a machine without a driver.
        _LOG.debug("no GPU by CuPy: %s", error)
        return None


def _seconds(product: Product, rows: Rows) -> float:
    started = time.perf_counter()
    product(rows)
    return time.perf_counter() - started
