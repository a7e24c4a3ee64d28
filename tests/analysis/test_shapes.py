"""Curvature and entropy of sequences against paths and sets of rows of known answer."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import compute_metrics

NAMES = ["curvature", "prompt_entropy", "prompt_entropy_2"]
Rows = npt.NDArray[np.floating]


def array(*sequences: Rows) -> xr.DataArray:
    lengths = [len(rows) for rows in sequences]
    return xr.DataArray(
        np.concatenate(sequences).astype(np.float32),
        dims=("token", "dim"),
        coords={
            "sequence": ("token", np.repeat(np.arange(len(lengths)), lengths)),
            "position": ("token", np.concatenate([np.arange(n) for n in lengths])),
            "special": ("token", np.zeros(sum(lengths), bool)),
        },
    )


def measure(*sequences: Rows, population: str = "all", causal: bool = False) -> dict[str, float]:
    found = compute_metrics(array(*sequences), NAMES, populations=[population], causal=causal)
    return {name: float(found[name].squeeze()) for name in NAMES}


def test_paths_by_hand() -> None:
    line = np.outer(np.arange(5), [1.0, 2.0, 3.0])
    square = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])
    back = np.array([[0.0, 0], [1, 0], [0, 0], [1, 0]])
    # A straight line turns by 0, a square by a right angle, there and back by π.
    assert measure(line)["curvature"] == pytest.approx(0, abs=1e-3)
    assert measure(square)["curvature"] == pytest.approx(math.pi / 2)
    assert measure(back)["curvature"] == pytest.approx(math.pi)
    # Sequences count alike, whatever their length.
    assert measure(square, back)["curvature"] == pytest.approx(math.pi * 3 / 4)


def test_independent_rows_turn_by_two_thirds_of_pi() -> None:
    # Increments share a row with opposite signs: their cosine is −1/2 in many dimensions.
    rows = np.random.default_rng(0).standard_normal((60, 3000))
    assert measure(rows)["curvature"] == pytest.approx(2 * math.pi / 3, abs=0.01)


def test_sets_of_rows_by_hand() -> None:
    # Orthogonal rows of norm 1 share alike; of norms 1 and √3 in the ratio 1 : 3.
    assert measure(np.eye(4))["prompt_entropy"] == pytest.approx(math.log(4))
    assert measure(np.eye(4))["prompt_entropy_2"] == pytest.approx(math.log(4))
    two = np.diag([1.0, math.sqrt(3)])
    assert measure(two)["prompt_entropy"] == pytest.approx(math.log(4) - 0.75 * math.log(3))
    assert measure(two)["prompt_entropy_2"] == pytest.approx(math.log(16 / 10))
    same = np.ones((7, 3))
    assert measure(same)["prompt_entropy"] == pytest.approx(0, abs=1e-6)
    # Scaled to norm 1 the two rows share alike.
    assert measure(two, population="unit")["prompt_entropy"] == pytest.approx(math.log(2))


def test_entropies_of_every_order_by_hand() -> None:
    # Orthogonal rows of norms 1 and √3 have the shares 1/4 and 3/4, alike ones 1/4 each.
    found = compute_metrics(
        array(np.diag([1.0, math.sqrt(3)])), ["prompt_entropy_by_order"], causal=False
    )
    entropies = found["prompt_entropy_by_order"].sel(population="all").squeeze()
    for order in entropies["order"].values.tolist():
        shares = np.array([0.25, 0.75])
        expected = renyi(shares, alpha=order) if order != 1 else -(shares * np.log(shares)).sum()
        assert entropies.sel(order=order).item() == pytest.approx(expected, rel=1e-6)
    alike = compute_metrics(array(np.eye(4)), ["prompt_entropy_by_order"], causal=False)
    np.testing.assert_allclose(
        alike["prompt_entropy_by_order"].sel(population="all").squeeze(), math.log(4), rtol=1e-6
    )


def test_entropies_fall_with_their_order_and_contain_the_named_ones() -> None:
    rows = np.random.default_rng(4).standard_normal((30, 12)) * np.arange(1, 13) ** -1.0
    found = compute_metrics(
        array(rows, 2 * rows[:9]), [*NAMES, "prompt_entropy_by_order"], causal=False
    )
    found = found.sel(population="all")
    entropies = found["prompt_entropy_by_order"]
    assert (np.diff(entropies.squeeze()) < 0).all()
    assert entropies.sel(order=1).item() == pytest.approx(found["prompt_entropy"].item())
    assert entropies.sel(order=2).item() == pytest.approx(found["prompt_entropy_2"].item())
    assert (entropies <= math.log(12)).all()
    # By another program, averaged over both sequences: shares of the singular values' squares.
    squares = [np.linalg.svd(part, compute_uv=False) ** 2 for part in (rows, rows[:9])]
    for order in (0.25, 0.5, 3.0, 8.0):
        each = [renyi(square / square.sum(), alpha=order) for square in squares]
        assert entropies.sel(order=order).item() == pytest.approx(np.mean(each), rel=1e-5)


def renyi(shares: Rows, *, alpha: float) -> float:
    return math.log((shares**alpha).sum()) / (1 - alpha)


def test_rows_left_out_are_left_out_of_the_path() -> None:
    square = np.array([[9.0, 9], [0, 0], [1, 0], [1, 1], [0, 1]])
    found = measure(square, population="content", causal=True)
    assert found["curvature"] == pytest.approx(math.pi / 2)


def test_a_path_does_not_jump_over_a_row_left_out() -> None:
    rows = np.array([[1.0, 0], [2, 0], [50, 50], [3, 0], [3, 1]])
    whole = array(rows)
    whole["special"][2] = True
    found = compute_metrics(whole, NAMES, populations=["content"], causal=False)
    # Rows 0, 1 and 3, 4 remain: two increments, but none after the other.
    assert np.isnan(found["curvature"]).all()
    assert np.isfinite(found["prompt_entropy"]).all()


def test_typical_rows_have_shapes_only_without_outliers() -> None:
    rows = np.random.default_rng(0).standard_normal((40, 4)) + 3
    alike = measure(rows, population="typical")
    assert alike == measure(rows, population="content")
    rows[7] *= 50
    assert all(math.isnan(value) for value in measure(rows, population="typical").values())


def test_rows_without_sequences_have_no_shapes() -> None:
    plain = array(np.eye(4)).drop_vars(["sequence", "position", "special"])
    found = compute_metrics(plain, NAMES)
    assert all(np.isnan(found[name]).all() for name in NAMES)


def test_rows_of_zeros_have_no_entropy() -> None:
    assert math.isnan(measure(np.zeros((3, 2)))["prompt_entropy"])
    assert math.isnan(measure(np.zeros((3, 2)))["curvature"])


@given(chunks=st.lists(st.integers(1, 3000), min_size=1, max_size=4))
@settings(max_examples=5, deadline=None)
def test_sequences_may_be_cut_anywhere(chunks: list[int]) -> None:
    rng = np.random.default_rng(1)
    whole = array(*(rng.standard_normal((100, 3)) for _ in range(84)))
    lengths, left = [], 8400
    while left:
        lengths.append(min(chunks[len(lengths) % len(chunks)], left))
        left -= lengths[-1]
    lazy = compute_metrics(whole.chunk(token=tuple(lengths)), NAMES, causal=True)
    xr.testing.assert_identical(lazy.load(), compute_metrics(whole, NAMES, causal=True))


def test_errors_are_those_of_a_mean_over_sequences() -> None:
    rng = np.random.default_rng(2)
    sequences = [rng.standard_normal((12, 5)) * scale for scale in rng.uniform(0.1, 3, 40)]
    found = compute_metrics(array(*sequences), NAMES, populations=["all"], causal=False)
    each = np.array([measure(rows)["prompt_entropy"] for rows in sequences])
    assert found["prompt_entropy"].item() == pytest.approx(each.mean())
    # Ten groups of four: the spread of their means over √10.
    expected = each.reshape(10, 4).mean(axis=1).std(ddof=1) / math.sqrt(10)
    assert found["prompt_entropy_stderr"].item() == pytest.approx(expected, rel=1e-6)
