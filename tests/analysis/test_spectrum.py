"""Two spectra from one reduction, against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.errors import AnalysisError
from analysis.lapack import tridiagonal_eigenvalues
from analysis.spectrum import Tridiagonal


@pytest.mark.parametrize("dim", [1, 2, 3, 17, 70])
@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 1e4])
def test_spectra_with_and_without_a_mean(dim: int, size: float) -> None:
    rng = np.random.default_rng(dim)
    rows = rng.standard_normal((100, dim)) * np.arange(1, dim + 1) ** -1.0
    scatter, mean = rows.T @ rows, size * rng.standard_normal(dim)
    before = scatter.copy()
    reduced = Tridiagonal(scatter, mean)
    whole = scatter + 100 * np.outer(mean, mean)
    for added, matrix in ((0.0, scatter), (100.0, whole)):
        expected = np.linalg.eigvalsh(matrix)[::-1]
        found = reduced.spectrum(added, rank=dim).values
        # Both are exact up to a few roundings of the largest eigenvalue.
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14 * dim * expected[0])
    np.testing.assert_array_equal(scatter, before)


def test_what_is_not_finite_has_no_eigenvalues() -> None:
    with pytest.raises(AnalysisError, match="is not finite"):
        tridiagonal_eigenvalues(np.array([1.0, np.nan]), np.array([1.0]))
