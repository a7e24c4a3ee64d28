"""Reading from an object store: the same values, and the same words for what is lost."""

import faulty_proxy
import numpy as np
import pytest
import xarray as xr

from store import cube, open_metrics, open_store
from store.errors import CorruptChunkError, MissingChunkError, StoreError
from store.metrics import Definition, write_metrics
from store.slab import slabs
from store.verify import census


@pytest.fixture
def proxy(s3_uri, s3_server, monkeypatch):
    with faulty_proxy.serve(s3_server) as (endpoint, proxy):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        yield proxy


@pytest.fixture
def repository(toy, s3_uri):
    repository = toy.prepare(s3_uri)
    toy.ingest(repository, 7)
    return repository


def test_a_bucket_reads_like_a_disk(toy, repository):
    expected = toy.values(7, "residual")
    model = open_store(repository.uri)[toy.PATH]
    np.testing.assert_array_equal(model["residual"].sel(step=7), expected)
    np.testing.assert_array_equal(cube(repository.uri, corpus="plays")[0, 0], expected)
    results = xr.Dataset({"average_cosine": ("step", [0.5])}, {"step": [7]})
    write_metrics(
        repository,
        toy.PATH,
        results,
        snapshot=repository.snapshot_id(),
        definitions=[Definition("average_cosine", 1)],
    )
    found = open_metrics(repository.uri, corpus="plays")
    assert found["average_cosine"].values.tolist() == [[0.5]]
    assert census(repository) == []


PLACE = "plays/owner--toy: residual, step 7, layer 2, tokens 16 to 31"


def test_a_lost_object_is_told_from_a_store_that_cannot_be_reached(toy, proxy, repository):
    (slab,) = slabs(repository, toy.PATH, layers=[2])
    proxy.fail_once("404", method="GET", part="/chunks/")
    with pytest.raises(MissingChunkError, match=PLACE + ": the chunk is missing"):
        slab.rows(np.array([20]))
    proxy.fail_once("403", method="GET", part="/chunks/")
    with pytest.raises(StoreError, match="cannot read " + PLACE) as raised:
        slab.rows(np.array([20]))
    assert not isinstance(raised.value, MissingChunkError | CorruptChunkError)


def test_an_object_cut_short_is_damaged(toy, proxy, repository):
    (slab,) = slabs(repository, toy.PATH, layers=[2])
    proxy.fail_once("short", method="GET", part="/chunks/", times=100)
    with pytest.raises(CorruptChunkError, match=PLACE):
        slab.rows(np.array([20]))


def test_a_passing_fault_is_not_noticed(toy, proxy, repository):
    (slab,) = slabs(repository, toy.PATH, layers=[2])
    proxy.fail_once("503", method="GET", part="/chunks/")
    np.testing.assert_array_equal(slab.rows(np.array([20])), toy.values(7, "residual")[2][[20]])
    assert len(proxy.faults) == 1
