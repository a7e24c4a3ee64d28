"""Rows in batches: each once, in the order that the seed says, in bounded memory."""

from __future__ import annotations

import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.errors import StoreError, UnknownNameError
from store.loader import load_rows
from store.slab import slabs

URI = "memory://loader"
STEPS, LAYERS, TOKENS, WIDTH, ROWS = (0, 16), 4, 50, 64, 16
PATH = "plays/owner--toy"
SMALL = 4 * WIDTH * 2 * (ROWS + 7)
"""Bytes of a buffer for a few chunks, with which an epoch fills it several times."""


@pytest.fixture(scope="module", autouse=True)
def filled(toy):
    repository = toy.prepare(URI, ("residual", "query", "final_norm"))
    for step in STEPS:
        toy.ingest(repository, step)
    return repository


def places(batches):
    return [
        place
        for batch in batches
        for place in zip(batch.step, batch.layer, batch.token, strict=True)
    ]


EVERY = [(s, layer, t) for s in STEPS for layer in range(LAYERS) for t in range(TOKENS)]


@settings(max_examples=25, deadline=None)
@given(
    st.integers(5, 70),
    st.booleans(),
    st.integers(1, 3),
    st.one_of(st.none(), st.lists(st.booleans(), min_size=TOKENS, max_size=TOKENS)),
)
def test_every_row_comes_once_with_its_place(batch_rows, shuffle, shards, kept):
    mask = None if kept is None else np.array(kept)
    loader = load_rows(
        URI,
        PATH,
        batch_rows=batch_rows,
        shuffle=shuffle,
        kept=mask,
        buffer_bytes=4 * WIDTH * (ROWS + batch_rows + 20),
    )
    given_out = [list(loader.batches(shard=shard, shards=shards)) for shard in range(shards)]
    batches = [batch for shard in given_out for batch in shard]
    wanted = [place for place in EVERY if mask is None or mask[place[2]]]
    assert sorted(places(batches)) == wanted
    assert loader.n_rows == len(wanted)
    for number, shard in enumerate(given_out):
        assert [len(batch) for batch in shard[:-1]] == [batch_rows] * (len(shard) - 1)
        assert len(shard) == loader.n_batches(shard=number, shards=shards)


@pytest.mark.parametrize("site", ["residual", "query", "final_norm"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_the_values_are_those_of_their_place(toy, site, shuffle):
    loader = load_rows(URI, PATH, site=site, batch_rows=7, shuffle=shuffle, buffer_bytes=SMALL)
    for batch in loader.batches():
        for row, step, layer, token in zip(
            batch.values, batch.step, batch.layer, batch.token, strict=True
        ):
            whole = toy.values(step, site)  # (layer, token, dim), (block, head, token, head_dim) …
            if site == "final_norm":
                assert layer == -1
                expected = whole[token]
            else:
                expected = whole[layer - (site == "query"), ..., token, :]
            np.testing.assert_array_equal(row, expected)


def test_in_order_means_by_step_layer_and_token():
    assert places(load_rows(URI, PATH, shuffle=False, batch_rows=33).batches()) == EVERY


def test_seed_epoch_and_shards_choose_the_order():
    def order(seed, epoch):
        loader = load_rows(URI, PATH, seed=seed, batch_rows=9)
        return places(pickle.loads(pickle.dumps(loader)).batches(epoch=epoch))

    assert order(0, 0) == order(0, 0)
    assert len({tuple(order(*which)) for which in [(0, 0), (0, 1), (1, 0)]}) == 3


def test_a_shuffled_batch_mixes_what_the_buffer_holds():
    """With everything in the buffer, a batch of 40 of 400 rows is a draw without replacement.

    The number of rows of one of 8 slabs is hypergeometric: mean 5, variance 40·(1/8)(7/8)·(360/399)
    = 3.9, so the chi-square over 8 slabs of 10 batches has mean 70; 120 is beyond 1 in 10,000.
    """
    loader = load_rows(URI, PATH, batch_rows=40, seed=3)
    square = 0.0
    for batch in loader.batches():
        counts = np.unique(batch.step * LAYERS + batch.layer, return_counts=True)[1]
        square += ((np.append(counts, [0] * (8 - len(counts))) - 5) ** 2).sum() / (3.95 * 8 / 7)
    assert square < 120


def test_memory_is_the_buffer_a_chunk_and_a_batch():
    loader = load_rows(URI, PATH, batch_rows=10, buffer_bytes=SMALL)
    list(loader.batches())
    tracemalloc.start()
    for _ in loader.batches():
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Two chunks and two batches beside it, and 100 kB for the places and the reading.
    assert peak < SMALL + 4 * WIDTH * 2 * (ROWS + 10) + 100_000


def test_what_cannot_be_given_is_refused(filled):
    with pytest.raises(StoreError, match="expected buffer_bytes of"):
        load_rows(URI, PATH, buffer_bytes=1000)
    with pytest.raises(StoreError, match="shard 2 of 2"):
        load_rows(URI, PATH).batches(shard=2, shards=2)
    with pytest.raises(StoreError, match="expected one value a token"):
        load_rows(URI, PATH, kept=np.ones(3, bool))
    with pytest.raises(UnknownNameError, match="no layer 9"):
        load_rows(URI, PATH, layers=[9])
    with pytest.raises(StoreError, match="batches of 0 rows"):
        load_rows(URI, PATH, batch_rows=0)
    assert len(slabs(filled, PATH)) == 8


def test_a_corpus_is_not_taken_for_a_model():
    with pytest.raises(UnknownNameError, match=r"no model .plays. in .*plays/owner--toy"):
        load_rows(URI, "plays")
