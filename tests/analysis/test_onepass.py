"""The pass over a layer against plain float64 computations, however the rows are cut."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import onepass, request
from analysis.errors import InputError, NonFiniteRowsError, TooFewRowsError
from analysis.layer import LayerStatistics
from analysis.metrics.cosine import (
    average_cosine,
    average_cosine_across,
    average_cosine_within,
)
from analysis.onepass import pass_over
from analysis.populations import FIRST, POPULATIONS, SPECIAL, Population, TokenTable
from analysis.request import Request
from analysis.statistics import Statistics

Rows = npt.NDArray[np.floating]
ALL = tuple(POPULATIONS.values())


class CutRows:
    """Rows that come in blocks of given sizes."""

    def __init__(self, rows: Rows, sizes: list[int]) -> None:
        self.values = rows
        self.sizes = sizes
        self.passes = 0

    def blocks(self, *, rows: int) -> Iterator[tuple[int, Rows]]:
        self.passes += 1
        start = 0
        while start < len(self.values):
            for size in self.sizes:
                block = self.values[start : start + size]
                if len(block):
                    yield start, np.ascontiguousarray(block)
                start += size

    def rows(self, indices: npt.NDArray[np.int64]) -> Rows:
        return self.values[indices]


def table(n: int, length: int, *, special: int = 0) -> TokenTable:
    position = np.arange(n) % length
    return TokenTable.from_coordinates(
        special=position == length - 1 if special else np.zeros(n, bool),
        position=position,
        sequence=np.arange(n) // length,
        causal=True,
    )


def chosen(rows: Rows, tokens: TokenTable, population: Population) -> tuple[Rows, Rows]:
    """Return the rows of a population in float64 and their sequences, by its definition."""
    values = rows.astype(np.float64)
    norms = np.linalg.norm(values, axis=1)
    member = np.ones(len(rows), bool)
    if population.from_content:
        member &= (tokens.codes != SPECIAL) & (tokens.codes != FIRST)
    if population.typical:
        member &= norms <= 3 * np.median(norms[member])
    if population.unit:
        member &= norms > 0
        values = values / np.where(norms > 0, norms, 1)[:, None]
    return values[member], tokens.sequence[member]


def cosines(values: Rows, sequence: Rows) -> tuple[float, float, float]:
    """Return the average cosine over all pairs, within and across, from the full matrix."""
    units = values / np.linalg.norm(values, axis=1, keepdims=True)
    matrix = units @ units.T
    other = ~np.eye(len(units), dtype=bool)
    same = sequence[:, None] == sequence[None]
    pairs = same & other
    several = pairs.any(axis=1)
    row_means = (matrix * pairs).sum(1)[several] / pairs.sum(1)[several]
    # Rows of a sequence of n_q rows share its mean with weight 1/n_q.
    within = np.average(row_means, weights=1 / same.sum(1)[several]) if several.any() else np.nan
    across = matrix[~same].mean() if (~same).any() else np.nan
    return matrix[other].mean(), within, across


def assert_agrees(layer: LayerStatistics, rows: Rows, tokens: TokenTable, rtol: float) -> None:
    for population in ALL:
        values, sequence = chosen(rows, tokens, population)
        total = layer.total(population)
        assert total.central.n == len(values)
        statistics = Statistics(total)
        np.testing.assert_allclose(statistics.mean, values.mean(0), rtol=rtol, atol=rtol)
        expected = np.linalg.svd(values - values.mean(0), compute_uv=False) ** 2 / len(values)
        found = statistics.spectrum[: len(expected)]
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * expected[0])
        np.testing.assert_allclose(
            np.sort(statistics.norms), np.sort(np.linalg.norm(values, axis=1)), rtol=1e-12
        )
        found = [
            function(statistics)
            for function in (average_cosine, average_cosine_within, average_cosine_across)
        ]
        assert found == pytest.approx(cosines(values, sequence), abs=1e-9, nan_ok=True)


def sample(seed: int, n: int, width: int) -> Rows:
    """Rows with outliers, rows near the outlier threshold, and large first tokens."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, width)) + rng.standard_normal(width)
    rows *= rng.choice([1.0, 2.5, 3.0, 3.5, 40.0], (n, 1), p=[0.8, 0.06, 0.06, 0.06, 0.02])
    return rows.astype(np.float32)


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(40, 300),
    width=st.integers(2, 9),
    length=st.integers(4, 30),
    sizes=st.lists(st.integers(1, 200), min_size=1, max_size=6),
    block=st.sampled_from([16, 64, 4096]),
)
@settings(max_examples=25, deadline=None)
def test_every_population_equals_float64_however_the_rows_are_cut(
    seed: int, n: int, width: int, length: int, sizes: list[int], block: int
) -> None:
    rows, tokens = sample(seed, n, width), table(n, length, special=seed % 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onepass.aligned_blocks, "__defaults__", (block,))
        layer = pass_over(CutRows(rows, sizes), tokens, Request(ALL))
    # Products are float32 (eps 6e-8) on shifted rows; the worst case adds up to a few of them.
    assert_agrees(layer, rows, tokens, rtol=1e-6)


@given(sizes=st.lists(st.integers(1, 3000), min_size=1, max_size=4))
@settings(max_examples=6, deadline=None)
def test_the_result_is_the_same_to_the_last_bit_however_the_rows_are_stored(
    sizes: list[int],
) -> None:
    rows, tokens = sample(3, 5000, 4), table(5000, 20)
    whole = pass_over(CutRows(rows, [5000]), tokens, Request(ALL))
    cut = pass_over(CutRows(rows, sizes), tokens, Request(ALL))
    for population in ALL:
        left, right = whole.total(population), cut.total(population)
        np.testing.assert_array_equal(left.central.scatter, right.central.scatter)
        np.testing.assert_array_equal(left.directions.total, right.directions.total)


@pytest.mark.parametrize("offset", [0, 10, 1000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_offset_of_a_thousand_spreads_costs_no_accuracy(offset: int, dtype: type) -> None:
    rng = np.random.default_rng(1)
    mixing = rng.standard_normal((32, 32)) / np.sqrt(32)
    rows = rng.standard_normal((6000, 32)) @ mixing + offset * rng.standard_normal(32)
    rows = rows.astype(dtype)
    layer = pass_over(CutRows(rows, [777]), TokenTable.unlabelled(6000), Request(ALL[:1]))
    found = Statistics(layer.total(POPULATIONS["all"])).spectrum
    exact = rows.astype(np.float64)
    expected = np.linalg.svd(exact - exact.mean(0), compute_uv=False) ** 2 / len(rows)
    np.testing.assert_allclose(found[0] / found.sum(), expected[0] / expected.sum(), rtol=1e-6)
    ranks = [values.sum() ** 2 / (values**2).sum() for values in (found, expected)]
    assert ranks[0] == pytest.approx(ranks[1], rel=1e-6)


def test_rows_near_the_threshold_wait_for_the_exact_median() -> None:
    # Norms 1 for the first half of the rows, 2 for the second: the running median says 1 for
    # long, so that norms of 4 look like outliers although 3 times the final median is 4.5.
    norms = np.concatenate([np.ones(5000), np.full(5000, 2.0)])
    norms[4000:5000:10] = 4.0
    rows = np.zeros((10_000, 3), np.float32)
    rows[np.arange(10_000), np.arange(10_000) % 3] = norms
    source = CutRows(rows, [10_000])
    tokens = table(10_000, 10)
    layer = pass_over(source, tokens, Request(ALL))
    assert layer.median == pytest.approx(1.5, abs=0.5)
    assert_members(layer, rows, tokens)


def test_a_second_pass_corrects_a_misleading_start() -> None:
    # The norms grow a hundredfold: whatever was called an outlier at first is typical at last.
    rows = np.ones((9000, 2), np.float32) * np.geomspace(1, 1000, 9000, dtype=np.float32)[:, None]
    rows[:, 1] *= np.sin(np.arange(9000))
    source = CutRows(rows, [9000])
    tokens = table(9000, 30)
    layer = pass_over(source, tokens, Request(ALL))
    assert source.passes == 2
    assert_members(layer, rows, tokens)


def test_too_many_undecided_rows_cost_a_second_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "_UNDECIDED_BYTES", 100)
    rows, tokens = sample(0, 500, 4), table(500, 20)
    source = CutRows(rows, [500])
    layer = pass_over(source, tokens, Request(ALL))
    assert source.passes == 2
    assert_agrees(layer, rows, tokens, rtol=1e-6)


def assert_members(layer: LayerStatistics, rows: Rows, tokens: TokenTable) -> None:
    typical = POPULATIONS["typical"]
    values, _ = chosen(rows, tokens, typical)
    total = layer.total(typical)
    assert total.central.n == len(values)
    centred = values - values.mean(0)
    expected = centred.T @ centred
    atol = 1e-6 * np.trace(expected)
    np.testing.assert_allclose(total.central.scatter, expected, atol=atol)
    assert total.directions.n == len(values)


def test_groups_add_up_to_the_total() -> None:
    rows, tokens = sample(5, 1000, 6), table(1000, 25)
    layer = pass_over(CutRows(rows, [300]), tokens, Request(ALL))
    assert len(layer.groups) == 10
    for population in ALL:
        groups = [layer.group(population, index) for index in range(10)]
        total = layer.total(population)
        assert sum(group.central.n for group in groups) == total.central.n
        np.testing.assert_allclose(
            sum(group.directions.total for group in groups), total.directions.total, rtol=1e-9
        )
        mean = sum(group.central.n * group.central.mean for group in groups) / total.central.n
        np.testing.assert_allclose(mean, total.central.mean, rtol=1e-9)
        within = sum(layer.group_scatter(population, index) for index in range(10))
        between = sum(
            group.central.n * np.outer(group.central.mean - mean, group.central.mean - mean)
            for group in groups
        )
        # Kept by group in float32.
        np.testing.assert_allclose(
            within + between, total.central.scatter, rtol=1e-5, atol=1e-6 * rows.var() * 1000
        )


def test_rows_that_are_not_finite_are_refused_with_their_place() -> None:
    rows, tokens = sample(0, 100, 3), table(100, 10)
    rows[42, 1] = np.inf
    rows[77] = np.nan
    with pytest.raises(NonFiniteRowsError, match=r"2 of the rows 0 to 99 .* row 42 is the first"):
        pass_over(CutRows(rows, [100]), tokens, Request(ALL))


def test_rows_that_are_not_finite_are_dropped_on_demand() -> None:
    rows, tokens = sample(0, 100, 3), table(100, 10)
    rows[42, 1] = np.inf
    kept = np.delete(np.arange(100), 42)
    layer = pass_over(CutRows(rows, [100]), tokens, Request(ALL, drop_nonfinite=True))
    total = layer.total(POPULATIONS["all"])
    assert total.central.n == 99
    np.testing.assert_allclose(total.central.mean, rows[kept].astype(float).mean(0), rtol=1e-6)


def test_no_rows_are_refused() -> None:
    with pytest.raises(TooFewRowsError, match="no rows to measure"):
        pass_over(CutRows(np.empty((0, 2), np.float32), [1]), table(0, 1), Request(ALL))


@pytest.mark.parametrize("n", [99, 101])
def test_rows_that_do_not_match_their_coordinates_are_refused(n: int) -> None:
    rows = sample(0, n, 3)
    with pytest.raises(InputError, match=rf"describes 100 rows, there are {n}"):
        pass_over(CutRows(rows, [50]), table(100, 10), Request(ALL))
