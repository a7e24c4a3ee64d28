"""Standard errors against textbook cases, recomputation and simulation."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr

from analysis import METRICS, compute_metrics
from analysis.groups import PackedMatrix, PackedRows, group_bounds, group_count
from analysis.inputs import ArrayRows
from analysis.jackknife import leave_out_groups, standard_error
from analysis.onepass import pass_over
from analysis.populations import POPULATIONS, TokenTable
from analysis.request import Request
from analysis.statistics import Statistics

Rows = npt.NDArray[np.floating]
ALL = POPULATIONS["all"]


def table(lengths: list[int]) -> TokenTable:
    n = sum(lengths)
    return TokenTable.from_coordinates(
        special=np.zeros(n, bool),
        position=np.concatenate([np.arange(length) for length in lengths]),
        sequence=np.repeat(np.arange(len(lengths)), lengths),
        causal=False,
    )


def test_the_error_of_a_mean_by_hand() -> None:
    # Values 1, 2, 3, 6 in groups of one: mean 3, leaving one out 11/3, 10/3, 3, 2. The jackknife
    # of a mean is s/√n with s² = (4 + 1 + 0 + 9)/3 = 14/3: √(14/12).
    left = [np.array(value) for value in (11 / 3, 10 / 3, 3.0, 2.0)]
    assert standard_error(np.array(3.0), left, [1, 1, 1, 1]) == pytest.approx(np.sqrt(14 / 12))


def test_groups_of_different_sizes_by_hand() -> None:
    # Groups of 1 and 3 rows with the means 0 and 4: θ = 3, θ_(−1) = 4, θ_(−2) = 0.
    # h = 4, 4/3; θ_J = 2·3 − (3/4·4 + 1/4·0) = 3; pseudo-values 12 − 3·4 = 0 and 4 − 0 = 4.
    # Variance: ((0 − 3)²/3 + (4 − 3)²/(1/3))/2 = (3 + 3)/2.
    error = standard_error(np.array(3.0), [np.array(4.0), np.array(0.0)], [1, 3])
    assert error == pytest.approx(np.sqrt(3))


def test_one_group_says_nothing() -> None:
    assert np.isnan(standard_error(np.array(3.0), [np.array(4.0)], [4]))


def test_groups_hold_whole_sequences_and_about_as_many_rows() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 40, 200).tolist()
    tokens = table(lengths)
    bounds = group_bounds(tokens)
    starts = np.cumsum([0, *lengths])
    assert set(bounds) <= set(starts)
    assert len(bounds) == 11
    sizes = np.diff(bounds)
    assert sizes.min() > 0.8 * sizes.max()


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [([5], [0, 5]), ([3, 4], [0, 3, 7]), ([1, 1, 1], [0, 1, 2, 3]), ([90, 1, 1], [0, 90, 92])],
)
def test_few_sequences_make_few_groups(lengths: list[int], expected: list[int]) -> None:
    assert group_bounds(table(lengths)).tolist() == expected


def test_wide_rows_have_fewer_groups_in_bounded_memory() -> None:
    assert [group_count(width, 3) for width in (64, 768, 2048, 4096, 8192)] == [10, 10, 10, 5, 4]
    assert group_count(100_000, 0) == 10


def test_a_packed_matrix_comes_back() -> None:
    half = np.random.default_rng(0).standard_normal((7, 5)) * 1e30
    matrix = half @ half.T
    vector, found = np.arange(7.0), np.ones((7, 7))
    PackedMatrix(matrix).add_to(found, vector, 1e29)
    expected = np.tril(1 + matrix + 1e29 * np.multiply.outer(vector, vector))
    np.testing.assert_allclose(np.tril(found), expected, rtol=1e-6)


def test_the_scatter_of_few_rows_is_kept_as_rows() -> None:
    rng = np.random.default_rng(3)
    rows = (rng.standard_normal((8, 64)) * 1e3 + 1e6) * 1e20
    assert PackedRows.suits(8, 64)
    assert not PackedRows.suits(9, 64)
    centred = rows - rows.mean(axis=0)
    matrix, vector = centred.T @ centred, rng.standard_normal(64)
    found, other = np.ones((2, 64, 64))
    PackedRows(rows).add_to(found, vector, 1e45)
    PackedMatrix(matrix).add_to(other, vector, 1e45)
    expected = np.tril(1 + matrix + 1e45 * np.multiply.outer(vector, vector))
    for each in (found, other):
        np.testing.assert_allclose(np.tril(each), expected, atol=1e-6 * matrix.max())


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_groups_with_few_rows_of_a_part_have_their_scatter(offset: float) -> None:
    # Three first tokens of each group beside sixty others, in 32 dimensions.
    rng = np.random.default_rng(4)
    rows = (rng.standard_normal((630, 32)) + offset * rng.standard_normal(32)).astype(np.float32)
    sequence = np.repeat(np.arange(30), 21)
    tokens = TokenTable.from_coordinates(
        special=np.zeros(630, bool),
        position=np.tile(np.arange(21), 30),
        sequence=sequence,
        causal=True,
    )
    source = ArrayRows(xr.Variable(("token", "dim"), rows))
    layer = pass_over(source, tokens, Request((ALL, POPULATIONS["content"])))
    for group, (first, last) in enumerate(itertools.pairwise(layer.bounds.tolist())):
        for population in (ALL, POPULATIONS["content"]):
            chosen = rows[first:last].astype(np.float64)
            if population.from_content:
                chosen = chosen[np.arange(len(chosen)) % 21 > 0]
            centred = chosen - chosen.mean(axis=0)
            scatter = layer.group_scatter(population, group)
            np.testing.assert_allclose(scatter, centred.T @ centred, atol=2e-5 * len(chosen))


def test_all_but_spectra_are_recomputed_exactly() -> None:
    rng = np.random.default_rng(1)
    rows = (rng.standard_normal((400, 6)) + 1).astype(np.float32)
    tokens = table([20] * 20)
    layer = pass_over(ArrayRows(xr.Variable(("token", "dim"), rows)), tokens, Request((ALL,)))
    left = leave_out_groups(layer, ALL, Statistics(layer.total(ALL)))
    bounds = group_bounds(tokens)
    moment = [metric for metric in METRICS.values() if metric.needs in ("directions", "moments")]
    for index, (size, statistics) in enumerate(left):
        kept = np.delete(np.arange(400), np.arange(bounds[index], bounds[index + 1]))
        assert size == 400 - len(kept)
        fresh = pass_over(
            ArrayRows(xr.Variable(("token", "dim"), rows[kept])),
            table([20] * (len(kept) // 20)),
            Request((ALL,), scatter=False),
        )
        again = Statistics(fresh.total(ALL))
        for metric in moment:
            value, expected = metric.function(statistics), metric.function(again)
            assert value == pytest.approx(expected, rel=1e-6), metric.name


def left_spectra(rows: Rows) -> list[tuple[Rows, Rows, Rows, Rows]]:
    """Return the spectra without each group, centred and not: as found, and decomposed anew."""
    tokens = table([40] * (len(rows) // 40))
    layer = pass_over(ArrayRows(xr.Variable(("token", "dim"), rows)), tokens, Request((ALL,)))
    total = Statistics(layer.total(ALL))
    assert total.spectrum[0] <= total.uncentred_spectrum[0]
    bounds = group_bounds(tokens)
    spectra = []
    for index, (_, left) in enumerate(leave_out_groups(layer, ALL, total)):
        kept = np.delete(rows.astype(float), np.arange(bounds[index], bounds[index + 1]), axis=0)
        exact = [
            np.linalg.eigvalsh(values.T @ values / len(kept))[::-1]
            for values in (kept - kept.mean(0), kept)
        ]
        spectra.append((left.spectrum, exact[0], left.uncentred_spectrum, exact[1]))
    return spectra


@pytest.mark.parametrize("scale", [1e-18, 1.0, 1e18])
def test_spectra_without_a_group_are_exact_up_to_128_dimensions(scale: float) -> None:
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((2000, 100)) / np.arange(1, 101) + 1
    for found, exact, found_uncentred, exact_uncentred in left_spectra(
        (rows * scale).astype(np.float32)
    ):
        # Scatters of groups are kept in float32.
        np.testing.assert_allclose(found, exact, atol=1e-6 * exact[0])
        np.testing.assert_allclose(found_uncentred, exact_uncentred, atol=1e-6 * exact_uncentred[0])


@pytest.mark.parametrize("kind", ["power law", "rogue dimension", "steep"])
def test_errors_of_wide_spectra_are_those_of_decompositions(kind: str) -> None:
    rng = np.random.default_rng(2)
    ranks = np.arange(1, 201)
    scales = {
        "power law": ranks**-0.7,
        "rogue dimension": np.where(ranks == 3, 100.0, 1.0),
        "steep": ranks**-1.5,
    }[kind]
    topics = np.repeat(rng.standard_normal((75, 200)), 40, axis=0) / 2
    rows = (rng.standard_normal((3000, 200)) + topics) * scales + 1
    spectra = left_spectra(rows.astype(np.float32))
    for first in (0, 2):
        found, exact = (
            np.array([summary(spectrum[first + which]) for spectrum in spectra]) for which in (0, 1)
        )
        np.testing.assert_allclose(found.std(axis=0), exact.std(axis=0), rtol=0.1)


def summary(values: Rows) -> tuple[float, float, float]:
    """Return the first share, the participation ratio and the effective rank."""
    roots = np.sqrt(values) / np.sqrt(values).sum()
    entropy = -(roots * np.log(roots)).sum()
    return values[0] / values.sum(), values.sum() ** 2 / (values**2).sum(), np.exp(entropy)


def simulate(rng: np.random.Generator, sequences: int = 60, length: int = 16) -> Rows:
    """Rows whose sequences share a topic, so that rows are anything but independent."""
    topics = rng.standard_normal((sequences, 1, 6)) * [3, 2, 1, 1, 0.5, 0.5]
    rows = topics + rng.standard_normal((sequences, length, 6)) + 1
    return rows.reshape(-1, 6).astype(np.float32)


NAMES = (
    "average_cosine",
    "average_cosine_across",
    "drift_norm",
    "svd_anisotropy",
    "participation_ratio",
    "effective_rank",
    "rankme",
)


def labelled(draws: Rows) -> xr.DataArray:
    coordinates = {
        "sequence": ("token", np.repeat(np.arange(60), 16)),
        "position": ("token", np.tile(np.arange(16), 60)),
        "special": ("token", np.zeros(960, bool)),
    }
    return xr.DataArray(draws, dims=("draw", "token", "dim"), coords=coordinates)


def test_errors_match_the_spread_over_repeated_draws() -> None:
    rng = np.random.default_rng(5)
    array = labelled(np.stack([simulate(rng) for _ in range(120)]))
    found = compute_metrics(array, NAMES, populations=["all"], causal=False).isel(population=0)
    for name in NAMES:
        spread = float(found[name].std("draw", ddof=1))
        errors = found[f"{name}_stderr"]
        # The spread of 120 draws is known to 1/√240 = 6 %, the mean of as many errors, each
        # known to 24 %, to 2 %; the jackknife itself is biased upwards by some percent.
        typical = float(np.sqrt((errors**2).mean("draw")))
        assert 0.8 < typical / spread < 1.35, (name, typical, spread)
        centre = float(found[name].mean("draw"))
        covered = float((abs(found[name] - centre) < 2.26 * errors).mean())
        # 2.26 is the 97.5 % quantile of Student's t for 9 degrees of freedom.
        assert covered > 0.88, (name, covered)


def test_taking_rows_for_independent_would_promise_too_much() -> None:
    rng = np.random.default_rng(6)
    array = labelled(np.stack([simulate(rng) for _ in range(20)]))
    whole = compute_metrics(array, ["drift_norm"], populations=["all"], causal=False)
    order = rng.permutation(960)
    shuffled = array.drop_vars(["sequence", "position", "special"]).isel(token=order)
    alone = compute_metrics(shuffled, ["drift_norm"])
    errors = [float((found["drift_norm_stderr"] ** 2).mean()) for found in (whole, alone)]
    assert errors[0] > 4 * errors[1]
