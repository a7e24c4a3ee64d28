"""Packing numbers for a page and reading them back as its script does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from analysis.report.numbers import COUNT_BITS, ERROR_BITS, VALUE_BITS, NumberPool
from analysis.report.thinning import spread, spread_logarithmically

Unpack = Callable[[str], npt.NDArray[np.float32]]


@pytest.mark.parametrize("bits", [VALUE_BITS, ERROR_BITS])
@given(
    values=arrays(
        np.float64,
        st.integers(0, 40),
        elements=st.floats(1e-30, 1e30) | st.floats(-1e30, -1e-30) | st.just(0.0),
    )
)
def test_numbers_come_back_within_half_a_unit_of_the_last_bit_kept(
    unpack: Unpack, bits: int, values: npt.NDArray[np.float64]
) -> None:
    pool = NumberPool()
    assert pool.add(values, bits) == 0
    # Half a unit of the last bit kept, and half a unit of float32 from the conversion before.
    relative = 2.0 ** -(bits + 1) + 2.0**-24
    np.testing.assert_allclose(unpack(pool.encode()), values, rtol=relative, atol=0)


def test_counts_are_exact_and_what_is_not_finite_is_absent(unpack: Unpack) -> None:
    pool = NumberPool()
    pool.add(np.array([0.0, 16_384.0, 16_777_215.0]), COUNT_BITS)
    start = pool.add(np.array([[np.nan, np.inf], [-np.inf, 1e300]]), VALUE_BITS)
    assert start == 3
    read = unpack(pool.encode())
    assert read[:3].tolist() == [0.0, 16_384.0, 16_777_215.0]
    assert np.isnan(read[3:]).all()


def test_an_empty_pool_can_be_encoded(unpack: Unpack) -> None:
    assert unpack(NumberPool().encode()).size == 0


@given(size=st.integers(1, 5000), limit=st.integers(2, 60))
def test_thinned_axes_keep_both_ends_and_the_limit(size: int, limit: int) -> None:
    for positions in (spread(size, limit), spread_logarithmically(size, limit)):
        assert len(positions) <= limit
        assert (positions[0], positions[-1]) == (0, size - 1)
        assert (np.diff(positions) > 0).all()
        if size <= limit:
            assert len(positions) == size
