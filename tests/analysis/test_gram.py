"""The choice between a CPU and a GPU, with NumPy standing in for CuPy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from analysis import gram


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
    assert device.copied == (3 if faster == "on_gpu" else 0)


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
