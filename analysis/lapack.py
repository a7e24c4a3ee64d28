"""Routines of BLAS and LAPACK that NumPy does not offer, called without the interpreter lock.

SciPy's own wrappers hold the lock; its libraries are called by address here. Matrices are in C
order, so that what LAPACK calls the upper triangle is the lower one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
import scipy.linalg.cython_blas
import scipy.linalg.cython_lapack  # noqa: F401 (loaded, so that its threads can be limited)
from numba.extending import get_cython_function_address

from analysis.errors import AnalysisError

Rows = npt.NDArray[np.floating]
Floats = npt.NDArray[np.float64]

_PREFIXES: Final = {"float32": "s", "float64": "d"}
_BLOCK: Final = 64


def add_gram(rows: Rows, matrix: Rows, *, fresh: bool) -> None:
    """Add the products of columns XᵀX to the lower triangle of a matrix; half of what ``@`` does.

    Args:
        rows: X (token, dim), contiguous.
        matrix: The matrix (dim, dim), contiguous and of the same dtype, changed in place; what is
            above its diagonal is left as it is.
        fresh: Whether to overwrite what is there, instead of adding.
    """
    n, dim = rows.shape
    width = _integer(dim)
    _routine("cython_blas", _PREFIXES[rows.dtype.name] + "syrk", 10)(
        b"U",
        b"N",
        width,
        _integer(n),
        _number(1, rows.dtype),
        _data(rows),
        width,
        _number(0 if fresh else 1, rows.dtype),
        _data(matrix),
        width,
    )


def tridiagonalise(matrix: Floats) -> tuple[Floats, Floats]:
    """Reduce a symmetric matrix M to a tridiagonal one QᵀMQ, with Q leaving the first axis alone.

    Args:
        matrix: M (dim, dim), contiguous; overwritten.

    Returns:
        The diagonal (dim) and what lies beside it (dim − 1).
    """
    dim = len(matrix)
    diagonal, beside = np.empty(dim), np.empty(max(dim - 1, 0))
    factors, work = np.empty(max(dim - 1, 1)), np.empty(max(dim, 1) * _BLOCK)
    info, width = ctypes.c_int(), _integer(dim)
    _routine("cython_lapack", "dsytrd", 10)(
        b"L",
        width,
        _data(matrix),
        width,
        _data(diagonal),
        _data(beside),
        _data(factors),
        _data(work),
        _integer(work.size),
        ctypes.pointer(info),
    )
    assert info.value == 0
    return diagonal, beside


def tridiagonal_eigenvalues(diagonal: Floats, beside: Floats) -> Floats:
    """Return the eigenvalues (dim) of a symmetric tridiagonal matrix, rising.

    Args:
        diagonal: Its diagonal (dim).
        beside: What lies beside it (dim − 1).

    Raises:
        AnalysisError: If there are none, as for values that are not finite.
    """
    if not (np.isfinite(diagonal).all() and np.isfinite(beside).all()):
        raise AnalysisError("a covariance is not finite: it has no eigenvalues")
    values, rest, info = diagonal.copy(), beside.copy(), ctypes.c_int()
    _routine("cython_lapack", "dsterf", 4)(
        _integer(len(values)), _data(values), _data(rest), ctypes.pointer(info)
    )
    if info.value:
        raise AnalysisError("the eigenvalues of a covariance were not found within 30 iterations")
    return values


@cache
def _routine(module: str, name: str, arguments: int) -> Callable[..., None]:
    address = get_cython_function_address(f"scipy.linalg.{module}", name)
    routine: Callable[..., None] = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(address)
    return routine


def _integer(value: int) -> object:
    return ctypes.pointer(ctypes.c_int(value))


def _number(value: float, dtype: np.dtype[np.floating]) -> object:
    return ctypes.pointer(np.ctypeslib.as_ctypes_type(dtype)(value))


def _data(array: Rows) -> int:
    return array.ctypes.data
