"""Linear comparisons of representations against their definitions and other programs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.spatial import procrustes
from sklearn.linear_model import LinearRegression

from analysis.errors import InputError, TooFewRowsError
from analysis.linear_pairs import PAIR_METRICS, compare_linear

Rows = npt.NDArray[np.floating]


def compare(*rows: Rows, sequences: Rows | None = None):
    loads = {number: (lambda values=values: values) for number, values in enumerate(rows)}
    return compare_linear(loads, sequences=sequences)


def layers(n: int = 500, seed: int = 0) -> list[Rows]:
    rng = np.random.default_rng(seed)
    first = rng.standard_normal((n, 6)) * [3, 2, 1, 1, 1, 1] + 2
    second = np.tanh(first @ rng.standard_normal((6, 6)))
    third = second @ rng.standard_normal((6, 4)) + rng.standard_normal((n, 4))
    return [values.astype(np.float32) for values in (first, second, third)]


def gram_cka(x: Rows, y: Rows) -> float:
    """CKA by its definition, from the matrices of inner products of centred rows."""
    grams = [(v - v.mean(0)) @ (v - v.mean(0)).T for v in (x.astype(float), y.astype(float))]
    return (grams[0] * grams[1]).sum() / np.sqrt((grams[0] ** 2).sum() * (grams[1] ** 2).sum())


def unbiased_hsic(k: Rows, m: Rows) -> float:
    """Song et al. 2012, equation 5, on Gram matrices of rows that need no centring."""
    n = len(k)
    k, m = k - np.diag(np.diag(k)), m - np.diag(np.diag(m))
    mixed = k.sum() * m.sum() / ((n - 1) * (n - 2)) - 2 / (n - 2) * (k.sum(0) @ m.sum(0))
    return ((k * m).sum() + mixed) / (n * (n - 3))


def test_cka_by_its_definition() -> None:
    rows = layers()
    found = compare(*rows)
    for i, x in enumerate(rows):
        for j, y in enumerate(rows):
            assert found["cka"].values[i, j] == pytest.approx(gram_cka(x, y), rel=1e-5)


def test_debiased_cka_by_its_definition() -> None:
    rows = [values[:60] for values in layers()]
    found = compare(*rows)["cka_debiased"].values
    grams = [values.astype(float) @ values.astype(float).T for values in rows]
    for i, k in enumerate(grams):
        for j, m in enumerate(grams):
            alone = unbiased_hsic(k, k) * unbiased_hsic(m, m)
            assert found[i, j] == pytest.approx(unbiased_hsic(k, m) / np.sqrt(alone), rel=1e-4)


def test_procrustes_agrees_with_scipy() -> None:
    first, second, _ = layers()
    # SciPy's disparity of matrices of norm 1 is 1 − (Σσ)².
    disparity = procrustes(first.astype(float), second.astype(float))[2]
    found = compare(first, second)["procrustes"].values[0, 1]
    assert found == pytest.approx(np.sqrt(1 - disparity), rel=1e-5)


def test_the_linear_map_agrees_with_scikit_learn() -> None:
    rows = layers()
    found = compare(*rows)
    for i, x in enumerate(rows):
        for j, y in enumerate(rows):
            fitted = LinearRegression().fit(x.astype(float), y.astype(float))
            missed = ((y - fitted.predict(x)) ** 2).sum()
            expected = 1 - missed / ((y - y.mean(0)) ** 2).sum()
            assert found["linear_r2"].values[i, j] == pytest.approx(expected, rel=1e-4, abs=1e-6)
    step = (rows[1] - rows[0]).astype(float)
    fitted = LinearRegression().fit(rows[0].astype(float), step)
    missed = ((step - fitted.predict(rows[0])) ** 2).sum()
    expected = 1 - missed / ((step - step.mean(0)) ** 2).sum()
    assert found["linear_r2_increment"].values[0, 1] == pytest.approx(expected, rel=1e-4)
    assert np.isnan(found["linear_r2_increment"].values[0, 2])


def test_a_rotated_copy_is_the_same() -> None:
    first = layers()[0]
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((6, 6)))[0]
    found = compare(first, (5 * first @ turn - 3).astype(np.float32))
    for name in ("cka", "cka_debiased", "procrustes", "linear_r2"):
        assert found[name].values == pytest.approx(np.ones((2, 2)), abs=1e-5), name


def test_any_linear_map_is_explained_but_not_a_rotation() -> None:
    first = layers()[0]
    mapped = (
        first @ np.diag([1, 10, 1, 0.1, 1, 3]) @ np.random.default_rng(1).standard_normal((6, 6))
    )
    found = compare(first, mapped.astype(np.float32))
    assert found["linear_r2"].values[0, 1] == pytest.approx(1, abs=1e-5)
    assert found["cka"].values[0, 1] < 0.95
    assert found["procrustes"].values[0, 1] < 0.99


def test_independent_rows_in_many_dimensions_are_alike_only_before_debiasing() -> None:
    rng = np.random.default_rng(0)
    found = compare(rng.standard_normal((200, 100)), rng.standard_normal((200, 100)))
    assert found["cka"].values[0, 1] > 0.2
    assert abs(found["cka_debiased"].values[0, 1]) < 3 * found["cka_debiased_stderr"].values[0, 1]


def test_fewer_rows_than_dimensions_explain_nothing() -> None:
    rng = np.random.default_rng(0)
    found = compare(rng.standard_normal((20, 30)), rng.standard_normal((20, 5)))
    assert np.isnan(found["linear_r2"].values[0]).all()
    assert np.isfinite(found["linear_r2"].values[1]).all()


def test_a_constant_representation_has_no_likeness() -> None:
    found = compare(layers()[0], np.ones((500, 6), np.float32))
    for name in ("cka", "procrustes", "linear_r2"):
        assert np.isnan(found[name].values[0, 1]), name


def test_errors_match_the_spread_over_repeated_draws() -> None:
    drawn = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        topics = np.repeat(rng.standard_normal((30, 5)), 10, axis=0)
        first = topics + rng.standard_normal((300, 5))
        second = first @ np.diag([1, 2, 1, 0.5, 1]) + topics**2 + rng.standard_normal((300, 5))
        drawn.append(compare(first, second, sequences=np.repeat(np.arange(30), 10)))
    for name in PAIR_METRICS:
        values = np.array([found[name].values[0, 1] for found in drawn])
        errors = np.array([found[f"{name}_stderr"].values[0, 1] for found in drawn])
        # 60 draws know the spread to 9 %, their errors together to 3 %.
        ratio = np.sqrt((errors**2).mean()) / values.std(ddof=1)
        assert 0.7 < ratio < 1.4, (name, ratio)


def test_results_say_what_they_are() -> None:
    found = compare(*layers())
    assert found["cka"].dims == ("layer", "other_layer")
    assert found["n"] == 500
    for name, variable in found.drop_vars("n").items():
        assert variable.attrs["long_name"], name
        assert variable.attrs["units"] == "1", name


def test_other_tokens_are_refused() -> None:
    first, second, _ = layers()
    with pytest.raises(InputError, match=r"as many rows each; got \{0: 500, 1: 499\}"):
        compare(first, second[1:])


def test_three_rows_are_too_few() -> None:
    with pytest.raises(TooFewRowsError, match="at least 4 rows, got 3"):
        compare(layers()[0][:3])
