"""Routines of LAPACK that NumPy does not offer, called without the interpreter lock.

SciPy's own wrappers hold the lock; its library is called by address here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
import scipy.linalg.cython_lapack  # noqa: F401 (loaded, so that its threads can be limited)
from numba.extending import get_cython_function_address

from analysis.errors import AnalysisError

Floats = npt.NDArray[np.float64]

_BLOCK: Final = 64


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
    _routine("dsytrd", 10)(
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
    _routine("dsterf", 4)(_integer(len(values)), _data(values), _data(rest), ctypes.pointer(info))
    if info.value:
        raise AnalysisError("the eigenvalues of a covariance were not found within 30 iterations")
    return values


@cache
def _routine(name: str, arguments: int) -> Callable[..., None]:
    address = get_cython_function_address("scipy.linalg.cython_lapack", name)
    routine: Callable[..., None] = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(address)
    return routine


def _integer(value: int) -> object:
    return ctypes.pointer(ctypes.c_int(value))


def _data(array: Floats) -> int:
    return array.ctypes.data
