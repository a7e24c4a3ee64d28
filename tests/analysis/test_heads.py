"""Sites with attention heads, measured head by head, and queries against keys."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr

from analysis import compute_metrics, heads
from analysis.compute import measure
from analysis.errors import InputError
from analysis.inputs import COORDINATES
from analysis.query_key import compare_queries_keys
from store.corpora import CorpusSpec, create_corpus
from store.create import ArraySpec, create_model
from store.metrics import read_metrics
from store.repository import Repository
from store.schema import SITES, TOKEN_COORDINATES
from store.write import reserve_step

Values = dict[str, npt.NDArray[np.float32]]
BLOCKS, HEADS, SHARED, N, WIDTH = 2, 4, 2, 300, 6
PATH = "plays/owner--toy"


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
        for site in ("query", "key", "attention_entropy", "attention_first_key")
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
    assert report.computed == 2 * 2 * BLOCKS * HEADS
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


def test_rows_are_needed_for_populations_of_norms(attention) -> None:
    repository, _, _ = attention
    with pytest.raises(InputError, match="has numbers, not rows"):
        measure(repository, PATH, sites=("attention_entropy",), populations=["unit"])
