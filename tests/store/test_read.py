import os
import pickle
import subprocess
import sys
from dataclasses import replace

import dask
import icechunk
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import store
from store import open_store
from store.chunks import ActivationArray
from store.corpora import create_id_corpus
from store.errors import MissingChunkError, StoreError, StoreNotFoundError
from store.lazy import StoredActivations
from store.write import reserve_step

SITES = ("residual", "final_norm", "query", "attention_entropy")
STEPS = (512, 0, 16)


@pytest.fixture(scope="module")
def filled(toy):
    repository = toy.prepare("memory://read", SITES)
    for step in STEPS:
        toy.ingest(repository, step)
    reserve_step(repository, toy.PATH, 99, identity={})
    return repository


@pytest.fixture
def model(filled, toy):
    return open_store(filled.uri)[toy.PATH]


@pytest.fixture
def no_compute():
    """Make any computation of a Dask graph fail."""

    def refuse(*_arguments, **_options):
        raise AssertionError("something was computed while a graph was built")

    with dask.config.set(scheduler=refuse):
        yield


@pytest.fixture
def reads(monkeypatch):
    """Every read of activations: (slot, depth, first token, one past the last)."""
    done = []
    read, gather = ActivationArray.read, ActivationArray.gather

    def counted_read(self, slot, depth, start, stop, **options):
        done.append((slot, depth, start, stop))
        return read(self, slot, depth, start, stop, **options)

    def counted_gather(self, slot, depth, indices):
        done.append((slot, depth, int(indices[0]), int(indices[-1]) + 1))
        return gather(self, slot, depth, indices)

    monkeypatch.setattr(ActivationArray, "read", counted_read)
    monkeypatch.setattr(ActivationArray, "gather", counted_gather)
    return done


def test_only_complete_steps_appear_in_order(model):
    np.testing.assert_array_equal(model["step"], [0, 16, 512])
    assert "complete" not in model.variables
    assert not [name for name in model.variables if name.endswith("_checksum")]


def test_one_layer_of_one_step_is_what_was_written(model, toy):
    for step in STEPS:
        layer = model["residual"].sel(step=step, layer=3)
        assert layer.dims == ("token", "dim")
        np.testing.assert_array_equal(layer, toy.values(step, "residual")[3])


@pytest.mark.parametrize("site", SITES)
def test_every_site_comes_back_whole(model, toy, site):
    expected = np.stack([toy.values(step, site) for step in sorted(STEPS)])
    np.testing.assert_array_equal(model[site], expected)


def test_every_variable_says_what_it_is(model):
    for name, variable in model.variables.items():
        assert variable.attrs["long_name"], name
    assert model["attention_entropy"].attrs["units"] == "1"
    assert model.attrs["n_blocks"] == 3


def test_coordinates_are_attached_to_what_they_describe(model, toy):
    residual = model["residual"]
    np.testing.assert_array_equal(residual["position"], np.arange(50) % 25)
    np.testing.assert_array_equal(residual["token_id"], np.arange(50))
    np.testing.assert_array_equal(residual["revision"], ["step0", "step16", "step512"])
    np.testing.assert_array_equal(residual["weights_sha256"], ["0", "16", "512"])
    np.testing.assert_allclose(residual["relative_depth"], [0, 1 / 3, 2 / 3, 1])
    np.testing.assert_array_equal(model["query"]["block"], [1, 2, 3])
    assert residual.sel(step=16)["revision"].item() == "step16"
    first = residual.sel(step=16, layer=0).where(residual["position"] == 0, drop=True)
    np.testing.assert_array_equal(first, toy.values(16, "residual")[0][[0, 25]])


def test_the_texts_of_a_corpus_are_on_its_node(filled):
    tree = open_store(filled.uri)
    assert tree["plays"]["text"].values.tolist() == ["to be", "or not"]
    assert tree["plays"]["source_start"].values.tolist() == [0, 5]
    assert tree["plays"].attrs["modality"] == "text"
    assert tree.attrs["snapshot"] == filled.snapshot_id()


def test_a_corpus_of_ids_lies_beside_models_with_fewer_tokens(toy, memory_uri):
    repository = toy.prepare(memory_uri)
    create_id_corpus(
        repository, replace(toy.CORPUS, name="ids"), sequences=[np.arange(3), np.arange(2)]
    )
    corpus = open_store(memory_uri)["ids"]
    assert corpus["token_id"].dims == ("corpus_token",)
    assert corpus["sequence"].values.tolist() == [0, 0, 0, 1, 1]


def test_nothing_is_read_before_it_is_asked_for(filled, toy, no_compute, reads):
    model = open_store(filled.uri)[toy.PATH]
    lazy = model["residual"].sel(step=512, layer=[1, 2]).mean("token")
    assert isinstance(lazy.data, dask.array.Array)
    str(model)
    assert reads == []


def test_the_graph_has_one_chunk_a_step_and_layer(model, toy):
    assert model["residual"].chunks == ((1,) * 3, (1,) * 4, (50,), (toy.WIDTH,))
    assert model["query"].chunks == ((1,) * 3, (1,) * 3, (2,), (50,), (toy.WIDTH // 2,))


def test_the_same_array_has_the_same_name(filled, toy):
    names = {open_store(filled.uri)[toy.PATH]["residual"].data.name for _ in range(2)}
    assert len(names) == 1


def test_selecting_in_one_call_reads_only_the_chunks_selected(model, reads):
    model["residual"].isel(step=1, layer=2, token=slice(20, 25)).compute()
    # Step 16 was written third, into slot 2.
    assert reads == [(2, 2, 20, 25)]


def test_lazy_arrays_without_dask_compose_selections(filled, toy, reads):
    model = open_store(filled.uri, chunks=None)[toy.PATH]
    rows = model["residual"].sel(step=512)[3].isel(token=slice(20, 40))[5:7, ::-1]
    np.testing.assert_array_equal(rows, toy.values(512, "residual")[3][25:27, ::-1])
    assert reads == [(0, 3, 25, 27)]


def test_other_dask_chunks(filled, toy):
    model = open_store(filled.uri, chunks={"token": -1, "layer": -1})[toy.PATH]
    assert model["residual"].chunks == ((1,) * 3, (4,), (50,), (toy.WIDTH,))
    np.testing.assert_array_equal(
        model["residual"].sel(step=0), toy.values(0, "residual").astype("float32")
    )


_KEYS = st.one_of(
    st.slices(4),
    st.integers(-4, 3),
    st.lists(st.integers(-4, 3), max_size=5).map(lambda at: np.array(at, dtype=int)),
)


@pytest.fixture(scope="module", params=["lazy", "dask"])
def array_and_values(request, filled, toy):
    """The residual stream from the store, and as it was written."""
    options = {"chunks": None} if request.param == "lazy" else {}
    lazy = open_store(filled.uri, **options)[toy.PATH]["residual"]
    whole = np.stack([toy.values(step, "residual") for step in sorted(STEPS)])
    return lazy.reset_coords(drop=True), xr.DataArray(whole, dims=lazy.dims)


@given(
    step=st.one_of(st.slices(3), st.integers(-3, 2)),
    layer=_KEYS,
    token=st.one_of(
        st.slices(50),
        st.integers(-50, 49),
        st.lists(st.integers(-50, 49), max_size=9).map(lambda at: np.array(at, dtype=int)),
    ),
    dim=_KEYS,
)
@settings(max_examples=60, deadline=None)
def test_any_selection_equals_numpy(array_and_values, step, layer, token, dim):
    lazy, memory = array_and_values
    key = {"step": step, "layer": layer, "token": token, "dim": dim}
    np.testing.assert_array_equal(lazy.isel(key).values, memory.isel(key).values)


def test_a_step_stored_without_a_site_is_nan_there(toy, memory_uri):
    repository = toy.prepare(memory_uri)
    toy.ingest(repository, 0)
    toy.ingest(repository, 1, sites=("residual",))
    model = open_store(memory_uri)[toy.PATH]
    np.testing.assert_array_equal(model["final_norm"].sel(step=0), toy.values(0, "final_norm"))
    assert np.isnan(model["final_norm"].sel(step=1)).all()
    np.testing.assert_array_equal(model["residual"].sel(step=1), toy.values(1, "residual"))


def test_a_lost_chunk_is_never_filled_in(toy, disk_repository, chunk_file):
    toy.ingest(disk_repository, 7)
    chunk_file(disk_repository, f"{toy.PATH}/residual/c/0/2/1/0").unlink()
    model = open_store(disk_repository.uri)[toy.PATH]
    with pytest.raises(MissingChunkError, match="step 7, layer 2, tokens 16 to 31"):
        model["residual"].mean().compute()


def test_lazy_arrays_are_small_to_send(filled, toy):
    array = StoredActivations
    model = open_store(filled.uri)[toy.PATH]
    assert len(pickle.dumps(model["residual"].sel(step=0, layer=0).data)) < 20_000
    assert array.dtype == np.float32


def test_an_older_snapshot_shows_what_it_held(toy, memory_uri):
    repository = toy.prepare(memory_uri)
    toy.ingest(repository, 5)
    earlier = repository.snapshot_id()
    toy.ingest(repository, 6)
    assert open_store(memory_uri, snapshot=earlier)[toy.PATH]["step"].values.tolist() == [5]
    assert open_store(memory_uri)[toy.PATH]["step"].values.tolist() == [5, 6]
    with pytest.raises(StoreError, match="no snapshot 'NOPE'"):
        open_store(memory_uri, snapshot="NOPE")


def test_the_stacks_of_a_model_are_nodes_below_it(toy, memory_uri):
    for stack in ("encoder", "decoder"):
        toy.prepare(memory_uri, model="owner/t5", stack=stack)
    model = open_store(memory_uri)["plays/owner--t5"]
    assert sorted(model.children) == ["decoder", "encoder"]
    assert model["encoder"]["residual"].sizes == {
        "step": 0,
        "layer": 4,
        "token": 50,
        "dim": toy.WIDTH,
    }


def test_no_store_is_an_error(tmp_path):
    with pytest.raises(StoreNotFoundError, match="does not exist"):
        open_store(tmp_path / "nothing")


def requests_of_opening(monkeypatch, uri):
    """The number of requests to the store that opening it makes."""
    counted = []

    def counting(name):
        original = getattr(icechunk.IcechunkStore, name)

        async def counted_request(self, *arguments, **options):
            counted.append(name)
            return await original(self, *arguments, **options)

        return counted_request

    with monkeypatch.context() as patch:
        for name in ("get", "get_partial_values"):
            patch.setattr(icechunk.IcechunkStore, name, counting(name))
        open_store(uri)
    return len(counted)


def test_opening_costs_the_same_however_many_steps_there_are(toy, memory_uri, monkeypatch):
    few = toy.prepare(f"{memory_uri}-few", step_capacity=4)
    many = toy.prepare(f"{memory_uri}-many", step_capacity=1000)
    for repository in (few, many):
        toy.ingest(repository, 0)
    costs = [requests_of_opening(monkeypatch, one.uri) for one in (few, many)]
    assert costs[0] == costs[1] < 40


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import store, sys; print(sorted({'numpy', 'xarray', 'zarr', 'icechunk'} & {*sys.modules}))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    answer = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert answer.stdout == "[]\n"


@pytest.mark.parametrize("name", store.__all__)
def test_exports_are_there(name):
    assert callable(getattr(store, name))


def test_what_is_not_exported_is_not_there():
    with pytest.raises(AttributeError, match="no attribute 'cubes'"):
        store.cubes  # noqa: B018 - the access is the test
