"""Standard errors and decimation of neighbour estimates, from disjoint subsamples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.metrics.intrinsic_dimension import gride, two_nn_mle
from analysis.metrics.metric import Metric
from analysis.neighbors import nearest_neighbors
from analysis.subsamples import decimate, disjoint_subsamples, subsample_errors

TWO_NN_MLE = Metric("two_nn_mle", two_nn_mle, "neighbors", 1, "", "1", "> 0", "", k=2)
GRIDE = Metric("gride", gride, "neighbors", 1, "", "1", "> 0", "", dims=("scale",), k=128)


def plane(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random((n, 2)).astype(np.float32)


@settings(max_examples=50, deadline=None)
@given(
    sequences=st.lists(st.integers(0, 20), max_size=200),
    parts=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_every_row_is_dealt_once_and_no_sequence_is_split(
    sequences: list[int], parts: int, seed: int
) -> None:
    numbers = np.array(sequences, np.int64)
    dealt = disjoint_subsamples(len(numbers), parts, seed=seed, sequences=numbers)
    assert len(dealt) <= parts
    assert sorted(row for part in dealt for row in part) == list(range(len(numbers)))
    held = [set(numbers[part]) for part in dealt]
    assert sum(map(len, held)) == len(set(sequences))
    singly = disjoint_subsamples(len(numbers), parts, seed=seed)
    sizes = [len(part) for part in singly]
    assert not sizes or max(sizes) - min(sizes) <= 1


def test_the_standard_error_is_the_deviation_over_samples() -> None:
    n = 300
    values, errors = [], []
    for seed in range(50):
        rows = plane(n, seed)
        values.append(two_nn_mle(nearest_neighbors(rows, 2)))
        errors.append(subsample_errors(rows, [TWO_NN_MLE])["two_nn_mle"])
    # The deviation over 50 samples is known to 10 %, the root mean square of errors to 3 %;
    # rows that share a neighbour depend on each other, so that neither is d/√n.
    ratio = np.sqrt(np.mean(np.square(errors))) / np.std(values, ddof=1)
    assert 0.75 < ratio < 1.35


def test_whole_sequences_make_the_error_larger_where_their_rows_are_alike() -> None:
    # 40 sequences of 20 rows; half of the sequences lie on a line, half fill a 5-space.
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((800, 5)).astype(np.float32)
    sequences = np.repeat(np.arange(40), 20)
    rows[sequences % 2 == 0, 1:] *= 1e-4
    whole = subsample_errors(rows, [TWO_NN_MLE], sequences=sequences)["two_nn_mle"]
    singly = subsample_errors(rows, [TWO_NN_MLE])["two_nn_mle"]
    assert whole > 1.3 * singly


def test_errors_of_a_curve_and_of_subsamples_too_small() -> None:
    errors = subsample_errors(plane(800, 0), [GRIDE, TWO_NN_MLE], parts=8)
    # 100 rows each: 64 neighbours for k = 32, but not 128 for k = 64.
    np.testing.assert_array_equal(np.isnan(errors["gride"]), [False] * 6 + [True])
    assert np.isfinite(errors["two_nn_mle"])
    few = subsample_errors(plane(10, 0), [TWO_NN_MLE])
    assert np.isnan(few["two_nn_mle"])


def test_rows_that_are_not_there_have_no_error() -> None:
    """One-token sequences of a causal model leave the population ``content`` without a row."""
    (empty,) = disjoint_subsamples(0, 10, seed=0)
    assert len(empty) == 0
    none = np.empty((0, 3), np.float32)
    errors = subsample_errors(none, [TWO_NN_MLE], sequences=np.empty(0, np.int64))
    assert np.isnan(errors["two_nn_mle"])
    levels = decimate(none, [TWO_NN_MLE], factors=(1, 2))
    assert levels["n"].values.tolist() == [0, 0]
    assert np.isnan(levels["two_nn_mle"]).all()


def test_own_sequences_are_excluded_in_subsamples_as_well() -> None:
    rows = plane(200, 0)
    sequences = np.repeat(np.arange(20), 10)
    # Each subsample of ten holds two sequences, so ten neighbours in the other.
    found = subsample_errors(
        rows, [TWO_NN_MLE], sequences=sequences, exclude_own_sequence=True, parts=10
    )
    assert np.isfinite(found["two_nn_mle"])
    alone = subsample_errors(
        rows, [TWO_NN_MLE], sequences=sequences, exclude_own_sequence=True, parts=20
    )
    assert np.isnan(alone["two_nn_mle"])


def test_decimation() -> None:
    rows = plane(1000, 0)
    found = decimate(rows, [TWO_NN_MLE, GRIDE], factors=(1, 2, 4))
    np.testing.assert_array_equal(found["n"], [1000, 500, 250])
    np.testing.assert_array_equal(found["decimation"], [1, 2, 4])
    whole = nearest_neighbors(rows, 128)
    assert found["two_nn_mle"].values[0] == two_nn_mle(whole)
    np.testing.assert_array_equal(found["gride"].values[0], gride(whole))
    halves = [
        two_nn_mle(nearest_neighbors(rows[part], 2))
        for part in disjoint_subsamples(1000, 2, seed=0)
    ]
    assert found["two_nn_mle"].values[1] == np.mean(halves)
    # Of two values, the deviation over √2 is half their distance.
    assert found["two_nn_mle_stderr"].values[1] == pytest.approx(abs(halves[0] - halves[1]) / 2)
    assert np.isnan(found["two_nn_mle_stderr"].values[0])
    assert found["gride"].dims == ("decimation", "scale")
