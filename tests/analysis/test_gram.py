"""The choice between a CPU and a GPU, with NumPy standing in for CuPy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from analysis import compute_metrics, gram


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A CuPy that counts what is copied to its device."""
    cupy = ModuleType("cupy")
    cupy.copied = 0

    def asarray(rows):
        cupy.copied += 1
        return rows

    cupy.asarray, cupy.asnumpy = asarray, np.asarray
    cupy.cuda = SimpleNamespace(is_available=lambda: True)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(gram, "_chosen", {})
    gram._gpu.cache_clear()
    yield cupy
    gram._gpu.cache_clear()


@pytest.mark.parametrize("faster", ["on_cpu", "on_gpu"])
def test_the_faster_of_both_takes_the_later_blocks(device, monkeypatch, faster: str) -> None:
    monkeypatch.setattr(gram, "_seconds", lambda product, rows: product.__name__ != faster)
    rows = np.random.default_rng(0).standard_normal((20, 5)).astype(np.float32)
    for _ in range(3):
        np.testing.assert_allclose(gram.gram(rows), rows.T @ rows, rtol=1e-6)
    # Once for the comparison with NumPy's product.
    assert device.copied == 1 + (3 if faster == "on_gpu" else 0)


def test_both_are_measured_once_for_a_width(device) -> None:
    rows = np.ones((20, 5), np.float32)
    gram.gram(rows)
    after_first = device.copied
    assert after_first >= 2
    gram.gram(rows)
    assert device.copied <= after_first + 1


def test_without_a_device_numpy_multiplies(device) -> None:
    device.cuda.is_available = lambda: False
    gram._gpu.cache_clear()
    gram.gram(np.ones((20, 5), np.float32))
    assert device.copied == 0


@pytest.mark.parametrize("error", [ImportError, OSError, RuntimeError])
def test_a_cupy_that_does_not_load_is_none(monkeypatch, error: type[Exception]) -> None:
    def fail(name: str) -> ModuleType:
        raise error("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(gram.importlib, "import_module", fail)
    gram._gpu.cache_clear()
    try:
        np.testing.assert_array_equal(gram.gram(np.ones((20, 5), np.float32)), np.full((5, 5), 20))
    finally:
        gram._gpu.cache_clear()


def test_a_device_that_rounds_more_is_not_used(device, monkeypatch, caplog) -> None:
    # TF32 keeps 10 bits of a factor.
    monkeypatch.setattr(device, "asarray", lambda rows: rows.astype(np.float16).astype(np.float32))
    monkeypatch.setattr(gram, "_seconds", lambda product, rows: product.__name__ != "on_gpu")
    rows = np.random.default_rng(0).standard_normal((4096, 8)).astype(np.float32)
    np.testing.assert_array_equal(gram.gram(rows), rows.T @ rows)
    assert "the GPU's product is off by" in caplog.text


def test_numpy_takes_over_where_a_device_fails(device, monkeypatch, caplog) -> None:
    monkeypatch.setattr(gram, "_seconds", lambda product, rows: product.__name__ != "on_gpu")
    rows = np.ones((20, 5), np.float32)
    gram.gram(rows)

    def fail(rows: np.ndarray) -> np.ndarray:
        raise MemoryError("out of memory allocating 16777216 bytes")

    monkeypatch.setattr(device, "asarray", fail)
    for _ in range(2):
        np.testing.assert_array_equal(gram.gram(rows), np.full((5, 5), 20))
    assert caplog.text.count("the GPU failed (out of memory") == 1


def test_a_whole_table_is_the_same_on_a_device(device, monkeypatch) -> None:
    rows = np.random.default_rng(1).standard_normal((900, 12)).astype(np.float32)
    array = xr.DataArray(rows, dims=("token", "dim"))
    names = ["svd_anisotropy", "effective_rank", "rankme", "spectrum", "average_cosine"]
    found = compute_metrics(array, names)
    assert device.copied > 0
    device.cuda.is_available = lambda: False
    gram._gpu.cache_clear()
    xr.testing.assert_allclose(found, compute_metrics(array, names), rtol=1e-6)
