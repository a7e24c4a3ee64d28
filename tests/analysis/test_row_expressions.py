"""Rows chosen by expressions over their tokens, in arrays and in the store."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr

from analysis import compute_metrics
from analysis.choose import make_plan
from analysis.compute import measure
from analysis.errors import InputError, UnknownPopulationError
from analysis.evaluate import measure_layer
from analysis.populations import CONTENT, UNCHOSEN, TokenTable, find_population
from analysis.row_expressions import RowExpression
from store.metrics import read_metrics

Rows = npt.NDArray[np.floating]
METRICS = ("average_cosine", "svd_anisotropy", "max_activation", "two_nn")

SPECIAL = np.array([1, 0, 0, 0, 0, 0, 0, 0, 1], bool)
POSITION = np.array([0, 1, 2, 3, 0, 1, 2, 3, 4])
SEQUENCE = np.array([0, 0, 0, 0, 7, 7, 7, 7, 7])
TOKEN_ID = np.array([9, 5, 6, 5, 5, 6, 5, 8, 9])
TABLE = TokenTable.from_coordinates(
    special=SPECIAL, position=POSITION, sequence=SEQUENCE, causal=True, token_id=TOKEN_ID
)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("content", [1, 2, 3, 5, 6, 7]),
        ("position<2", [0, 1, 4, 5]),
        ("content and 1 <= position < 3", [1, 2, 5, 6]),
        ("last", [3, 7]),
        ("not content", [0, 4, 8]),
        ("special or position == 4", [0, 8]),
        ("token_id != 5 and not special", [2, 5, 7]),
        ("sequence > 0 and position % 2 == 1", [5, 7]),
        # In content token 5 occurs in rows 1, 3 and 6, token 6 twice, 8 once, and 9 never.
        ("frequency >= 3", [1, 3, 4, 6]),
        ("content and frequency == 1", [7]),
    ],
)
def test_an_expression_chooses_rows(text: str, rows: list[int]) -> None:
    table = TABLE.choose(RowExpression.parse(text))
    assert np.flatnonzero(table.codes == CONTENT).tolist() == rows
    assert set(np.delete(table.codes, rows)) <= {UNCHOSEN}


@pytest.mark.parametrize(
    "text",
    [
        "position <",
        "position",
        "1",
        "positon < 3",
        "position and content",
        "position < 'a'",
        "__import__('os').system('true')",
        "position.max() > 3",
        "content if special else last",
        "position in (1, 2)",
        "position % 0 == 0",
        "[row for row in content]",
    ],
)
def test_anything_else_is_refused_with_what_is_expected(text: str) -> None:
    with pytest.raises(InputError, match=r"rows cannot be chosen by .*for example 'content and"):
        find_population(text)


def test_one_word_is_a_name() -> None:
    with pytest.raises(UnknownPopulationError, match="did you mean 'content'"):
        find_population("contents")
    assert find_population("last").expression == RowExpression("last")
    assert find_population("content").expression is None
    assert find_population(" position<3 and  content").name == "position < 3 and content"


def test_what_is_not_known_is_said_to_be() -> None:
    table = TokenTable.from_coordinates(
        special=SPECIAL, position=POSITION, sequence=SEQUENCE, causal=True
    )
    with pytest.raises(InputError, match="nothing is known of 'frequency' here"):
        table.choose(RowExpression.parse("frequency > 2"))


class Once:
    """Rows that can be read in order once."""

    held = False

    def __init__(self, rows: Rows) -> None:
        self.values = rows
        self.width = rows.shape[1]
        self.read = 0

    def blocks(self, *, rows: int) -> Iterator[tuple[int, Rows]]:
        self.read += 1
        yield 0, self.values

    def rows(self, indices: npt.NDArray[np.int64]) -> Rows:
        return self.values[indices]


def coordinates(n: int, length: int) -> dict[str, tuple[str, Rows]]:
    return {
        "special": ("token", np.arange(n) % length == length - 1),
        "position": ("token", np.arange(n) % length),
        "sequence": ("token", np.arange(n) // length),
        "token_id": ("token", np.arange(n) % 7),
    }


def test_a_population_by_an_expression_is_that_of_its_rows_alone() -> None:
    rng = np.random.default_rng(0)
    rows = (rng.standard_normal((1200, 10)) + 1).astype(np.float32)
    array = xr.DataArray(rows, dims=("token", "dim"), coords=coordinates(1200, 30))
    text = "content and 5 <= position < 12"
    found = compute_metrics(array, METRICS, populations=["all", text, "unit"], causal=True)
    assert found["population"].values.tolist() == ["all", "unit", text]
    alone = array.isel(token=((array.position >= 5) & (array.position < 12)).values)
    expected = compute_metrics(alone, METRICS, populations=["all"], causal=True)
    for name in METRICS:
        value, error = (
            found.sel(population=text)[name],
            found.sel(population=text)[f"{name}_stderr"],
        )
        assert float(value) == pytest.approx(float(expected[name][0]), rel=1e-6), name
        # Groups are cut by all rows in one, by those that are left in the other.
        assert float(error) == pytest.approx(float(expected[f"{name}_stderr"][0]), rel=0.5), name
    counts = found.sel(population=text)
    assert int(counts["n"]) == 40 * 7
    assert int(counts["n_sequences"]) == 40
    assert int(counts["n_dropped_unchosen"]) == 1200 - 280
    named = compute_metrics(array, METRICS, populations=["all", "unit"], causal=True)
    for name in METRICS:
        np.testing.assert_array_equal(found[name][:2], named[name], err_msg=name)


def test_all_populations_share_one_reading() -> None:
    rows = np.random.default_rng(1).standard_normal((500, 6)).astype(np.float32)
    source = Once(rows)
    table = TokenTable.from_coordinates(
        special=np.zeros(500, bool),
        position=np.arange(500) % 25,
        sequence=np.arange(500) // 25,
        causal=True,
    )
    names = ["all", "typical", "position < 9", "last"]
    plan = make_plan(["average_cosine", "spectrum"], names, labelled=True)
    found = measure_layer(source, table, plan)
    assert source.read == 1
    assert set(found["average_cosine"]) == set(names)
    assert found["n"]["last"] == 20


def test_the_store_keeps_and_renews_them_by_their_text(stored) -> None:
    options = {"metrics": ["average_cosine"], "steps": [0], "layers": [1]}
    first = measure(
        stored.repository, stored.path, populations=["content and position<5"], **options
    )
    again = measure(
        stored.repository,
        stored.path,
        populations=["content  and  position < 5", "all"],
        **options,
    )
    assert (first.computed, again.computed, again.up_to_date) == (1, 1, 1)
    found = read_metrics(stored.repository, stored.path)
    assert found is not None
    kept = found["average_cosine"].sel(step=0, layer=1, population="content and position < 5")
    place = (stored.tokens["position"] > 0) & (stored.tokens["position"] < 5)
    rows = stored.values[0][1][place].astype(np.float64)
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    n = len(units)
    expected = ((units.sum(axis=0) ** 2).sum() - n) / (n * (n - 1))
    assert float(kept) == pytest.approx(expected, abs=1e-9)
