"""Sizes of single values: which are drawn, their median, and the metrics made of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import compute_metrics, magnitudes
from analysis.magnitudes import Magnitudes, drawn_per_row, first_drawn, median_of

Rows = npt.NDArray[np.floating]
NAMES = ("max_activation", "median_activation", "max_activation_ratio", "kurtosis_by_dimension")
POPULATIONS = ("all", "content", "typical", "unit")


def labelled(rows: Rows, length: int = 20) -> xr.DataArray:
    n = len(rows)
    coordinates = {
        "sequence": ("token", np.arange(n) // length),
        "position": ("token", np.arange(n) % length),
        "special": ("token", np.arange(n) % length == length - 1),
    }
    return xr.DataArray(rows, dims=("token", "dim"), coords=coordinates, attrs={"causal": True})


def massive(n: int, width: int, dtype: type = np.float32) -> Rows:
    rng = np.random.default_rng(n)
    rows = rng.standard_normal((n, width)) + rng.standard_normal(width)
    rows[::20] *= 30
    rows[5::101] *= 8
    return rows.astype(dtype)


def by_definition(rows: Rows) -> dict[str, Rows]:
    """Return the rows of each population, in float64."""
    values, place = rows.astype(np.float64), np.arange(len(rows)) % 20
    content = values[(place > 0) & (place < 19)]
    norms = np.linalg.norm(content, axis=1)
    typical = content[norms <= 3 * np.median(norms)]
    unit = content / norms[:, None]
    return {"all": values, "content": content, "typical": typical, "unit": unit}


@given(
    st.lists(
        st.lists(st.floats(0, 2.0**100, width=32), max_size=9).map(sorted), min_size=1, max_size=5
    ),
    st.sampled_from([np.float32, np.float64]),
)
@settings(max_examples=80, deadline=None)
def test_the_median_of_sorted_pieces_is_that_of_all(pieces: list[list[float]], dtype: type) -> None:
    sizes = [np.array(piece, dtype) for piece in pieces]
    everything = np.concatenate(sizes).astype(np.float64)
    expected = np.median(everything) if len(everything) else np.nan
    np.testing.assert_equal(median_of(sizes), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_population_has_the_sizes_that_numpy_finds(dtype: type) -> None:
    rows = massive(900, 12, dtype)
    found = compute_metrics(labelled(rows), NAMES, populations=POPULATIONS)
    for name, values in by_definition(rows).items():
        here, sizes = found.sel(population=name), np.abs(values)
        # The rows of `unit` are scaled in the precision of the rows.
        rtol = 2 * float(np.finfo(dtype).eps)
        assert float(here["max_activation"]) == pytest.approx(sizes.max(), rel=rtol)
        assert float(here["median_activation"]) == pytest.approx(np.median(sizes), rel=rtol)
        ratio = sizes.max() / np.median(sizes)
        assert float(here["max_activation_ratio"]) == pytest.approx(ratio, rel=2 * rtol)
        centred = values - values.mean(axis=0)
        kurtosis = (centred**4).mean(axis=0) / (centred**2).mean(axis=0) ** 2
        np.testing.assert_allclose(here["kurtosis_by_dimension"], kurtosis, rtol=1e-5)
    assert (found["max_activation_ratio_stderr"] > 0).all()


def test_the_median_of_many_values_is_near_that_of_all_and_nothing_is_missed_by_the_largest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(magnitudes, "DRAWN", 1 << 14)
    rows = massive(4000, 64)
    rows[1234, 7] = -5e4
    found = compute_metrics(labelled(rows), NAMES[:2], populations=["all"]).isel(population=0)
    assert float(found["max_activation"]) == 5e4
    sizes = np.abs(rows)
    # Four values of each row: 16,000, whose median varies by about 1/(2 f √16,000), f the density
    # there, 1.2/√16,000 = 0.9 % of it for a Gaussian; these spread wider.
    error = float(found["median_activation_stderr"])
    assert abs(float(found["median_activation"]) - np.median(sizes)) < 3 * error
    assert error < 0.03 * np.median(sizes)


def test_values_are_drawn_evenly_from_all_dimensions_whatever_the_stretch() -> None:
    assert [drawn_per_row(n, 768) for n in (1, 170, 1000, 10**6)] == [768, 768, 131, 1]
    first = first_drawn(0, 76_800, 768)
    counts = np.bincount(first, minlength=768)
    # The multiples of 2³²/φ leave no dimension out, and favour none.
    assert counts.min() >= 98
    assert counts.max() <= 102
    np.testing.assert_array_equal(first[5000:6000], first_drawn(5000, 6000, 768))


def test_merging_keeps_the_largest_and_all_that_was_drawn() -> None:
    total = Magnitudes()
    for sizes in ([1.0, 4.0], [], [2.0, 9.0, 9.5]):
        total.merge(Magnitudes(max(sizes, default=0.0), [np.array(sizes)]))
    assert total.largest == 9.5
    assert median_of(total.drawn) == 4.0
    assert np.isnan(median_of([]))
