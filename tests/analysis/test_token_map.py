"""Samples of tokens with their texts, their plane, and their neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_allclose

from analysis.token_map import nearest_tokens, principal_plane
from analysis.token_sample import TokenSample
from store.schema import DIM, TOKEN


def test_a_plane_has_the_two_largest_variances():
    """Rows on three axes with scales 3, 2, 1: shares are 9/14 and 4/14 of the variance."""
    corners = np.array([[x, y, z] for x in (-3, 3) for y in (-2, 2) for z in (-1, 1)], float)
    plane = principal_plane(corners)
    assert_allclose(plane.shares, [9 / 14, 4 / 14], rtol=1e-12)
    assert_allclose(np.abs(plane.points), np.abs(corners[:, :2]), rtol=1e-9)


@pytest.mark.parametrize("shape", [(1, 5), (2, 5), (5, 1), (4, 2)])
def test_few_rows_have_a_plane(shape):
    rows = np.arange(np.prod(shape), dtype=float).reshape(shape)
    plane = principal_plane(rows - rows.mean(axis=0))
    assert plane.points.shape == (shape[0], 2)
    assert np.isfinite(plane.shares).all()


@dataclass
class FakeSlab:
    values: np.ndarray
    label: tuple[str, int]
    dims: tuple[str, ...] = (TOKEN, DIM)

    def rows(self, indices):
        return self.values[indices]


def test_neighbours_are_those_of_the_smallest_angle_about_the_mean():
    """Four rows about 0: the first points along x; the second nearly so; the third against it."""
    values = np.array([[1.0, 0], [0.9, 0.1], [-1.4, 0.4], [-0.5, -0.5]])
    sample = TokenSample("c/m", "s", np.arange(4), ("a",) * 4, ("",) * 4, np.zeros(4), np.arange(4))
    (found,) = nearest_tokens([FakeSlab(values, ("layer", 3))], sample, 0, k=2)
    assert (found.layer, found.rows) == (3, (1, 3))
    assert_allclose(found.cosine, [0.9 / np.hypot(0.9, 0.1), -np.sqrt(0.5)])
