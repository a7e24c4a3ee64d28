"""Two spectra from one reduction, and products of half the work, against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.errors import AnalysisError
from analysis.lapack import add_gram, tridiagonal_eigenvalues
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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_are_added_below_the_diagonal(dtype: str) -> None:
    rows = np.random.default_rng(0).integers(-4, 5, (30, 7)).astype(dtype)
    matrix = np.full((7, 7), 9.0, dtype)
    add_gram(rows, matrix, fresh=True)
    np.testing.assert_array_equal(np.tril(matrix), np.tril(rows.T @ rows))
    add_gram(rows, matrix, fresh=False)
    np.testing.assert_array_equal(np.tril(matrix), np.tril(2 * rows.T @ rows))
    assert (matrix[np.triu_indices(7, 1)] == 9).all()


def test_what_is_not_finite_has_no_eigenvalues() -> None:
    with pytest.raises(AnalysisError, match="is not finite"):
        tridiagonal_eigenvalues(np.array([1.0, np.nan]), np.array([1.0]))
