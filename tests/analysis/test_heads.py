"""Sites with attention heads, measured head by head, and queries against keys."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr

from analysis import compute_metrics, heads
from analysis.compute import measure
from analysis.errors import InputError, NonFiniteRowsError
from analysis.groups import group_bounds
from analysis.head_sums import sum_heads
from analysis.inputs import COORDINATES
from analysis.populations import TokenTable
from analysis.query_key import compare_queries_keys
from store.corpora import CorpusSpec, create_corpus
from store.create import ArraySpec, create_model
from store.metrics import read_metrics
from store.repository import Repository
from store.schema import SITES, TOKEN_COORDINATES
from store.slab import slabs
from store.write import reserve_step

Values = dict[str, npt.NDArray[np.float32]]
BLOCKS, HEADS, SHARED, N, WIDTH = 2, 4, 2, 300, 6
PATH = "plays/owner--toy"
STORED = ("query", "key", "attention_entropy", "attention_first_key", "attention_received")


@pytest.fixture
def attention(memory_uri: str) -> tuple[Repository, Values, xr.Dataset]:
    """A store of queries and keys of two blocks, where two heads each share keys."""
    repository = Repository.open_or_create(memory_uri)
    spec = CorpusSpec("plays", "text", {"unit": "tokens", "size": 20}, 0, "c0ffee")
    create_corpus(repository, spec, texts=["to be"], sources=["a"], source_starts=[0])
    tokens = {name: np.zeros(N, item.dtype) for name, item in TOKEN_COORDINATES.items()}
    tokens["sequence"] = (np.arange(N) // 20).astype(np.int32)
    tokens["position"] = (np.arange(N) % 20).astype(np.int32)
    sizes = {"block": BLOCKS, "head": HEADS, "key_value_head": SHARED, "token": N}
    sizes |= {"head_dim": WIDTH}
    arrays = [
        ArraySpec(SITES[site], {name: sizes[name] for name in SITES[site].dims[1:]})
        for site in (
            "query",
            "key",
            "attention_entropy",
            "attention_first_key",
            "attention_received",
        )
    ]
    attributes = {"n_blocks": BLOCKS, "width": 24, "chunk_rows": 64, "causal": True}
    create_model(
        repository, "plays", "owner/toy", arrays=arrays, tokens=tokens, attributes=attributes
    )
    rng = np.random.default_rng(0)
    offsets = rng.standard_normal((BLOCKS, SHARED, 1, WIDTH))
    values = {
        "query": rng.standard_normal((BLOCKS, HEADS, N, WIDTH)) + offsets.repeat(2, axis=1),
        "key": rng.standard_normal((BLOCKS, SHARED, N, WIDTH)) - offsets,
        "attention_entropy": rng.random((BLOCKS, HEADS, N)),
        # Heads 0 and 1 of the first block are sinks, none of the second.
        "attention_first_key": rng.random((BLOCKS, HEADS, N)) * 0.2
        + np.array([[0.5, 0.3, 0, 0], [0, 0, 0, 0.1]])[..., None],
    }
    # Head 0 of both blocks rests on the key at position 3, heads 1 and 2 of the first on the first.
    received = rng.random((BLOCKS, HEADS, N)) * 0.2
    received[:, 0, tokens["position"] == 3] += 0.5
    received[0, 1:3, tokens["position"] == 0] += 0.5
    values["attention_received"] = received
    values = {site: array.astype(np.float32) for site, array in values.items()}
    with reserve_step(repository, PATH, 7, identity={"weights": "a"}) as writer:
        for site, array in values.items():
            axis = SITES[site].dims[1:].index("token")
            for start in range(0, N, writer.chunk_rows):
                stop = min(start + writer.chunk_rows, N)
                writer.write_block(site, start, array.take(range(start, stop), axis=axis))
        writer.commit(provenance={"revision": "r", "weights_sha256": "a"})
    table = xr.Dataset({name: ("token", tokens[name]) for name in COORDINATES})
    return repository, values, table


NAMES = ["average_cosine", "drift_norm", "mean_row", "two_nn"]


@pytest.mark.parametrize("held", [heads.HELD_BYTES, 0])
def test_every_head_is_measured_for_itself(attention, monkeypatch, held: int) -> None:
    monkeypatch.setattr(heads, "HELD_BYTES", held)
    repository, values, table = attention
    report = measure(repository, PATH, metrics=NAMES, sites=("query", "key"), sample=100)
    assert report.slabs == 2 * BLOCKS
    assert report.computed == BLOCKS * (HEADS + SHARED) * (3 * 4 + 1)
    again = measure(repository, PATH, metrics=NAMES, sites=("query", "key"), sample=100)
    assert (again.computed, again.up_to_date) == (0, report.computed)
    found = read_metrics(repository, PATH)
    array = xr.DataArray(
        values["query"],
        dims=("block", "head", "token", "head_dim"),
        coords={name: table[name] for name in COORDINATES},
    )
    expected = compute_metrics(array, NAMES, causal=True, sample=100)
    assert found["query_average_cosine"].dims == ("step", "block", "head", "population")
    assert found["block"].values.tolist() == [1, 2]
    assert found["key_average_cosine"].dims == ("step", "block", "key_value_head", "population")
    assert found["query_mean_row"].dims[-1] == "head_dim"
    for name in (*NAMES, "average_cosine_stderr"):
        np.testing.assert_allclose(
            found[f"query_{name}"].isel(step=0), expected[name], rtol=1e-6, err_msg=name
        )


def test_queries_against_keys(attention) -> None:
    repository, values, table = attention
    measure(repository, PATH, metrics=["mean_row"], sites=("query", "key"))
    found = compare_queries_keys(read_metrics(repository, PATH).load()).isel(step=0)
    content = table["position"].values > 0
    for block in range(BLOCKS):
        for head in range(HEADS):
            q = values["query"][block, head, content].astype(float)
            k = values["key"][block, head // 2, content].astype(float)
            units = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (q, k)]
            means = [rows.mean(0) for rows in (q, k)]
            cosine = means[0] @ means[1] / np.linalg.norm(means[0]) / np.linalg.norm(means[1])
            place = {"block": block, "head": head}
            assert found["cosine_mean_query_key"].isel(place).item() == pytest.approx(cosine)
            average = (units[0] @ units[1].T).mean()
            assert found["average_cosine_query_key"].isel(place).item() == pytest.approx(average)


def test_queries_need_their_means(attention) -> None:
    repository, _, _ = attention
    measure(repository, PATH, metrics=["mean_row"], sites=("query",))
    results = read_metrics(repository, PATH)
    with pytest.raises(InputError, match=r"no key_mean_row of 'content'; measure 'mean_row' with"):
        compare_queries_keys(results)


def test_a_number_a_token_is_averaged_head_by_head(attention) -> None:
    repository, values, table = attention
    site = "attention_entropy"
    report = measure(repository, PATH, sites=(site,))
    assert report.computed == 3 * 2 * BLOCKS * HEADS
    assert measure(repository, PATH, sites=(site,), plan=True).computed == 0
    found = read_metrics(repository, PATH).sel(step=7, population="content")
    chosen = values[site][:, :, table["position"].values > 0].astype(np.float64)
    np.testing.assert_allclose(found[f"{site}_mean"], chosen.mean(axis=-1), rtol=1e-6)
    np.testing.assert_allclose(found[f"{site}_deviation"], chosen.std(axis=-1), rtol=1e-5)
    assert (found[f"{site}_mean_stderr"] > 0).all()


def test_heads_that_rest_on_the_first_key_are_counted(attention) -> None:
    repository, _, _ = attention
    measure(repository, PATH, sites=("attention_first_key",), populations=["content"])
    rates = read_metrics(repository, PATH)["attention_sink_rate"].sel(population="content")
    assert rates.dims == ("step", "block")
    np.testing.assert_array_equal(rates[0], [0.5, 0.0])


def test_heads_that_rest_on_any_key_are_counted_by_its_position(attention) -> None:
    repository, values, table = attention
    measure(repository, PATH, sites=("attention_received",))
    found = read_metrics(repository, PATH).sel(step=7)
    rates = found["attention_sink_rate_by_key"]
    assert rates.dims == ("block", "population", "token_position")
    every = rates.sel(population="all")
    np.testing.assert_array_equal(every.sel(token_position=3), [0.25, 0.25])
    np.testing.assert_array_equal(every.sel(token_position=0), [0.5, 0.0])
    np.testing.assert_array_equal(every.sel(token_position=[1, 2, *range(4, 20)]), 0)
    # There is no twenty-first token, and the first is no content of a causal model.
    assert every.sel(token_position=20).isnull().all()
    assert rates.sel(population="content", token_position=0).isnull().all()
    means = found["attention_received_mean_by_position"].sel(population="all", token_position=3)
    chosen = values["attention_received"][:, :, table["position"].values == 3]
    np.testing.assert_allclose(means, chosen.astype(np.float64).mean(axis=-1), rtol=1e-6)
    # Fifteen sequences in ten groups of one or two: the jackknife over them, by its own formula.
    groups = np.array_split(np.arange(15), np.flatnonzero(np.diff(group_of(table, 15))) + 1)
    assert_jackknife(
        found["attention_received_mean_by_position_stderr"]
        .sel(population="all", token_position=3)
        .values,
        chosen.astype(np.float64),
        groups,
    )


def group_of(table: xr.Dataset, sequences: int) -> npt.NDArray[np.int64]:
    described = TokenTable.from_coordinates(
        **{name: table[name].values for name in COORDINATES}, causal=True
    )
    first = np.arange(sequences) * 20
    return np.searchsorted(group_bounds(described), first, side="right")


def assert_jackknife(found, each, groups) -> None:
    """Check the standard error of a mean over sequences (..., sequence), with groups left out."""
    n = each.shape[-1]
    whole = each.mean(axis=-1)
    left = np.stack([np.delete(each, group, axis=-1).mean(axis=-1) for group in groups])
    sizes = np.array([len(group) for group in groups]).reshape(-1, *(1,) * whole.ndim)
    ratio = n / sizes
    centre = len(groups) * whole - ((1 - sizes / n) * left).sum(axis=0)
    pseudo = ratio * whole - (ratio - 1) * left
    variance = ((pseudo - centre) ** 2 / (ratio - 1)).mean(axis=0)
    np.testing.assert_allclose(found, np.sqrt(variance), rtol=1e-5)


def test_queries_and_keys_are_measured_together_where_both_are(attention) -> None:
    repository, values, table = attention
    names = ["cosine_mean_query_key", "average_cosine_query_key"]
    sites = ("query", "key")
    chosen = ["all", "content", "position < 5", "unit"]
    report = measure(repository, PATH, metrics=names, sites=sites, populations=chosen)
    # Rows of norm 1 are no population of two sites.
    assert (report.computed, report.slabs) == (2 * 3 * BLOCKS * HEADS, 2 * BLOCKS)
    again = measure(repository, PATH, metrics=names, sites=sites, populations=chosen)
    assert (again.computed, again.up_to_date, again.slabs) == (0, report.computed, 0)
    found = read_metrics(repository, PATH).sel(step=7)
    assert found[names[0]].dims == ("block", "head", "population")
    position = table["position"].values
    for population, rows in (
        ("all", position >= 0),
        ("content", position > 0),
        ("position < 5", position < 5),
    ):
        here = found.sel(population=population)
        assert (here["query_key_n"] == rows.sum()).all()
        assert (here["query_key_n_sequences"] == 15).all()
        for head in range(HEADS):
            q = values["query"][0, head, rows].astype(float)
            k = values["key"][0, head // 2, rows].astype(float)
            cosines = q @ k.T / np.outer(np.linalg.norm(q, axis=1), np.linalg.norm(k, axis=1))
            means = q.mean(0), k.mean(0)
            expected = means[0] @ means[1] / np.prod([np.linalg.norm(mean) for mean in means])
            at = here.isel(block=0, head=head)
            assert at[names[0]].item() == pytest.approx(expected, rel=1e-9)
            assert at[names[1]].item() == pytest.approx(cosines.mean(), rel=1e-9)
            assert 0 < at[names[1] + "_stderr"].item() < 0.2


def test_queries_and_keys_come_with_all_metrics_of_both(attention) -> None:
    repository, _, _ = attention
    report = measure(repository, PATH, sites=("query", "key"), sample=100, plan=True)
    alone = [
        measure(repository, PATH, sites=(site,), sample=100, plan=True).computed
        for site in ("query", "key")
    ]
    assert report.computed == sum(alone) + 2 * 2 * BLOCKS * HEADS
    with pytest.raises(InputError, match="as the sites query,key or query_rotary,key_rotary"):
        measure(repository, PATH, metrics=["cosine_mean_query_key"], sites=("query",))


def test_queries_with_infinite_values_are_refused_or_left_out(attention) -> None:
    repository, values, _ = attention
    slab = slabs(repository, PATH, site="query")[0]
    broken = values["query"][0].astype(np.float64)
    broken[1, 30] = np.inf

    class Broken:
        site, shape = slab.site, slab.shape

        def blocks(self):
            yield 0, broken

    every = [np.ones(N, bool)]
    bounds = np.array([0, 100, N])
    with pytest.raises(NonFiniteRowsError, match=r"1 of 300 rows of query .* from row 30 on"):
        sum_heads(Broken(), every, bounds, drop_nonfinite=False)
    ((first, second),) = sum_heads(Broken(), every, bounds, drop_nonfinite=True)
    kept = np.delete(broken, 30, axis=1)
    np.testing.assert_allclose(first.totals + second.totals, kept.sum(axis=1))
    assert first.n_directed.tolist() == [99] * HEADS


def test_rows_are_needed_for_populations_of_norms(attention) -> None:
    repository, _, _ = attention
    with pytest.raises(InputError, match="has numbers, not rows"):
        measure(repository, PATH, sites=("attention_entropy",), populations=["unit"])
