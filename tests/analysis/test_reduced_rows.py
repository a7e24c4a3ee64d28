"""Searches on a few directions first: inequality, rounding, and the choice of directions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import neighbors
from analysis.centred_rows import CentredRows, centre_rows
from analysis.exact_kernels import squares_within
from analysis.neighbors import distinct_rows, nearest_neighbors
from analysis.reduced_rows import reduce_rows
from analysis.reduction import Reduction, choose_reduction, leading_directions

Singles = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]


def gaussian(n: int, dim: int, seed: int = 0) -> Singles:
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


def decaying(n: int, dim: int, seed: int) -> Singles:
    """Rows whose spread falls by ten from direction to direction."""
    turn = np.linalg.qr(gaussian(dim, dim, seed + 1))[0]
    return ((gaussian(n, dim, seed) * 10.0 ** -np.arange(dim)) @ turn).astype(np.float32)


def massive(n: int, dim: int, seed: int) -> Singles:
    rows = gaussian(n, dim, seed)
    rows[:: max(1, n // 3), 0] += 3e4
    return rows


def two_clouds(n: int, dim: int, seed: int) -> Singles:
    rows = gaussian(n, dim, seed)
    rows[::2] += 1e4
    return rows


def near_duplicates(n: int, dim: int, seed: int) -> Singles:
    rows = gaussian(n, dim, seed)
    rows[1::2] = rows[: 2 * (n // 2) : 2] + np.float32(1e-6) * gaussian(n // 2, dim, seed + 1)
    return 100 * rows


def lattice(n: int, dim: int, seed: int) -> Singles:
    return np.round(2 * gaussian(n, dim, seed))


def clusters(n: int, dim: int, seed: int) -> Singles:
    return 50 * gaussian(4, dim, seed + 1)[np.arange(n) % 4] + gaussian(n, dim, seed)


def tiny(n: int, dim: int, seed: int) -> Singles:
    return gaussian(n, dim, seed) * np.float32(2.0**-120)


def huge(n: int, dim: int, seed: int) -> Singles:
    return gaussian(n, dim, seed) * np.float32(2.0**60)


KINDS: dict[str, Callable[[int, int, int], Singles]] = {
    kind.__name__: kind
    for kind in (
        gaussian,
        decaying,
        massive,
        two_clouds,
        near_duplicates,
        lattice,
        clusters,
        tiny,
        huge,
    )
}


def squared_distances(rows: npt.NDArray[np.floating]) -> Floats:
    wide = rows.astype(np.float64)
    return np.stack([((row - wide) ** 2).sum(axis=1) for row in wide])


def directions_of(centred: CentredRows, kind: str, count: int, seed: int) -> Floats:
    """Directions of the search, chosen well, at random, badly, or not quite orthonormal."""
    dim = centred.rows.shape[1]
    drawn = np.random.default_rng(seed).standard_normal((dim, count))
    if kind == "axes":
        return np.eye(dim)[:, :count]
    if kind == "leading":
        drawn = leading_directions(centred.every(1), count).astype(np.float64)
    basis: Floats = np.linalg.qr(drawn)[0]
    return basis * (1 + 1e-7) if kind == "skew" else basis


drawn = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(sorted(KINDS)),
        "n": st.integers(6, 70),
        "dim": st.integers(2, 40),
        "seed": st.integers(0, 10_000),
        "by": st.sampled_from(["leading", "random", "axes", "skew"]),
        "share": st.floats(0, 1),
    }
)


@settings(max_examples=150, deadline=None)
@given(drawn=drawn)
def test_reduced_squares_never_exceed_exact_ones_by_more_than_the_slack(
    drawn: dict[str, object],
) -> None:
    rows, count = rows_of(drawn)
    kept = distinct_rows(rows)
    centred = centre_rows(rows, kept, 16)
    directions = directions_of(centred, str(drawn["by"]), count, 1)
    reduced = reduce_rows(centred, directions, 16)
    exact = squared_distances(rows[kept])
    norms = reduced.norms.astype(np.float32)
    products = reduced.coordinates @ reduced.coordinates.T
    found = norms[:, None] + norms - 2 * products
    squares, slack = squares_within(reduced.reading(slice(None)), np.sqrt(exact))
    assert (found.astype(np.float64) <= squares * (1 + 1e-12) + slack).all()


@settings(max_examples=100, deadline=None)
@given(
    drawn=drawn,
    k=st.one_of(st.integers(1, 4), st.integers(28, 40)),
    extra=st.integers(0, 8),
    block_rows=st.integers(5, 80),
    sequences=st.integers(0, 5),
)
def test_a_search_on_a_few_directions_finds_the_same(
    drawn: dict[str, object], k: int, extra: int, block_rows: int, sequences: int
) -> None:
    rows, count = rows_of(drawn)
    rows = rows[distinct_rows(rows)]
    groups = np.arange(len(rows)) % (sequences + 2) if sequences else None
    whole = nearest_neighbors(rows, k, groups=groups, minimum=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbors, "choose_reduction", chosen(str(drawn["by"]), count, k + extra))
        found = nearest_neighbors(
            rows, k, groups=groups, minimum=0, block_rows=block_rows, threads=2
        )
    np.testing.assert_array_equal(found.distances, whole.distances)
    np.testing.assert_array_equal(found.indices, whole.indices)
    exact = squared_distances(rows)
    labels = np.arange(len(rows)) if groups is None else groups
    exact[labels[:, None] == labels] = np.inf
    nearest = np.sqrt(np.sort(exact, axis=1)[:, : found.distances.shape[1]])
    np.testing.assert_allclose(found.distances, nearest, rtol=1e-13, atol=0)


def rows_of(drawn: dict[str, object]) -> tuple[Singles, int]:
    """Return rows of a kind, and a number of directions from one to all."""
    dim = int(str(drawn["dim"]))
    count = 1 + int(float(str(drawn["share"])) * (dim - 1))
    return KINDS[str(drawn["kind"])](int(str(drawn["n"])), dim, int(str(drawn["seed"]))), count


def chosen(by: str, count: int, candidates: int) -> Callable[..., Reduction]:
    def choose(centred: CentredRows, *_: object) -> Reduction:
        return Reduction(directions_of(centred, by, count, 1), candidates, 0.0)

    return choose


def curved(n: int, dim: int) -> Singles:
    """Rows near a curved sheet of few dimensions, as layers have them."""
    rng = np.random.default_rng(0)
    hidden = np.tanh(rng.standard_normal((n, 6)) @ rng.standard_normal((6, 40)) / 2)
    rows = hidden @ rng.standard_normal((40, dim)) + 0.02 * rng.standard_normal((n, dim))
    return rows.astype(np.float32)


def test_rows_of_few_dimensions_are_searched_on_few_directions() -> None:
    rows = curved(6000, 512)
    kept = np.arange(len(rows))
    reduction = choose_reduction(centre_rows(rows, kept, 1024), kept, 2, 8)
    assert reduction is not None
    gram = reduction.directions.T @ reduction.directions
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-12)
    found = nearest_neighbors(rows, 2, threads=2)
    assert 0 < found.n_refined < len(rows) / 2
    wide = rows.astype(np.float64)
    for token in range(0, len(rows), 500):
        squares = ((wide - wide[token]) ** 2).sum(axis=1)
        squares[token] = np.inf
        order = np.argsort(squares, kind="stable")[:2]
        np.testing.assert_array_equal(found.indices[token], order)
        np.testing.assert_allclose(found.distances[token], np.sqrt(squares[order]), rtol=1e-13)


def test_rows_that_a_few_directions_do_not_tell_apart_are_multiplied_whole() -> None:
    for rows, k in ((gaussian(6000, 512), 2), (curved(2000, 512), 2), (curved(6000, 512), 2000)):
        kept = np.arange(len(rows))
        centred = centre_rows(rows, kept, 1024)
        assert choose_reduction(centred, kept, k, k + 6 + k // 16) is None


def test_leading_directions_hold_what_the_leading_components_hold() -> None:
    rows = decaying(300, 40, 0)[:, :20]
    rows -= rows.mean(axis=0)
    wide = rows.astype(np.float64)
    values = np.linalg.eigvalsh(wide.T @ wide)[::-1]
    along = wide @ leading_directions(rows, 4)
    # The last may lean towards the next by the square of their ratio, 100, or a few times that.
    np.testing.assert_allclose((along**2).sum(axis=0), values[:4], rtol=5e-2)
