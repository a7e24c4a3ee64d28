from importlib.metadata import entry_points

import numpy as np
import pytest
import xarray as xr

from store.engine import ActlasBackend
from store.errors import StoreError, UnknownNameError
from store.history import create_tag


@pytest.fixture(scope="module")
def filled(toy):
    repository = toy.prepare("memory://engine")
    toy.ingest(repository, 0)
    create_tag(repository, "before")
    toy.ingest(repository, 8)
    return repository


def open_tree(filled, **options):
    return xr.open_datatree(filled.uri, engine=ActlasBackend, **options)


def test_xarray_finds_the_engine_by_its_name():
    (entry,) = entry_points(group="xarray.backends", name="actlas")
    assert entry.load() is ActlasBackend


def test_a_store_opens_as_a_tree(filled, toy):
    tree = open_tree(filled)
    np.testing.assert_array_equal(tree[toy.PATH]["residual"].sel(step=8), toy.values(8, "residual"))
    assert tree["plays"]["text"].values.tolist() == ["to be", "or not"]


def test_default_dask_chunks_are_one_a_step_and_layer(filled, toy):
    residual = open_tree(filled, chunks={})[toy.PATH]["residual"]
    assert residual.chunks == ((1, 1), (1,) * 4, (50,), (toy.WIDTH,))
    np.testing.assert_array_equal(residual.sel(step=0, layer=2), toy.values(0, "residual")[2])


def test_one_group_opens_as_a_dataset(filled, toy):
    dataset = xr.open_dataset(filled.uri, engine=ActlasBackend, group=toy.PATH)
    assert dataset["step"].values.tolist() == [0, 8]
    with pytest.raises(UnknownNameError, match=r"no group 'plays/toy' .*'plays/owner--toy'"):
        xr.open_dataset(filled.uri, engine=ActlasBackend, group="plays/toy")
    with pytest.raises(StoreError, match="give group=, one of plays, plays/owner--toy"):
        xr.open_dataset(filled.uri, engine=ActlasBackend)


def test_groups_open_apart(filled, toy):
    groups = xr.open_groups(filled.uri, engine=ActlasBackend)
    assert sorted(groups) == ["/", "/plays", f"/{toy.PATH}"]


def test_options_reach_the_store(filled, toy):
    tree = open_tree(filled, tag="before", drop_variables="final_norm")
    assert tree[toy.PATH]["step"].values.tolist() == [0]
    assert "final_norm" not in tree[toy.PATH]
