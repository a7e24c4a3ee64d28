import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import xarray as xr
import zarr
from safetensors import safe_open

from store.errors import StoreError, UnknownNameError
from store.export import Selection, export
from store.slab import Slab

SITES = ("residual", "final_norm", "query", "attention_entropy")


@pytest.fixture(scope="module")
def filled(toy):
    repository = toy.prepare("memory://export", SITES, attributes={"causal": True})
    for step in (8, 0):
        toy.ingest(repository, step)
    return repository


def select(repository, **options):
    return Selection(repository, repository.snapshot_id(), "plays", **options)


def test_zarr_keeps_groups_values_labels_and_chunks(filled, toy, tmp_path):
    (target,) = export(select(filled), tmp_path / "out", format="zarr")
    dataset = xr.open_zarr(target, group=toy.PATH, consolidated=False, chunks=None)
    for site in SITES:
        np.testing.assert_array_equal(dataset[site].sel(step=8), toy.values(8, site))
    assert dataset["step"].values.tolist() == [0, 8]
    assert dataset["revision"].values.tolist() == ["step0", "step8"]
    assert dataset.attrs["causal"] is True
    array = zarr.open_array(target, path=f"{toy.PATH}/residual", mode="r")
    assert array.chunks == (1, 1, 16, toy.WIDTH)
    assert [type(codec).__name__ for codec in array.compressors] == ["BloscCodec", "Crc32cCodec"]


def test_netcdf_is_a_file_a_model(filled, toy, tmp_path):
    (target,) = export(select(filled), tmp_path / "out", format="netcdf")
    assert target.name == "plays--owner--toy.nc"
    with xr.open_dataset(target, engine="netcdf4") as dataset:
        np.testing.assert_array_equal(dataset["query"].sel(step=0), toy.values(0, "query"))
        assert dataset["position"].dims == ("token",)
        assert dataset.attrs["causal"] == 1
        assert dataset["residual"].attrs["long_name"].startswith("residual stream")


def test_safetensors_is_a_file_a_model_and_step(filled, toy, tmp_path):
    written = export(select(filled), tmp_path / "out", format="safetensors")
    assert [path.name for path in written] == ["step_0.safetensors", "step_8.safetensors"]
    with safe_open(written[1], framework="numpy") as file:
        np.testing.assert_array_equal(
            file.get_tensor("residual.layer_3"), toy.values(8, "residual")[3]
        )
        np.testing.assert_array_equal(file.get_tensor("query.block_1"), toy.values(8, "query")[0])
        np.testing.assert_array_equal(file.get_tensor("final_norm"), toy.values(8, "final_norm"))
        np.testing.assert_array_equal(file.get_tensor("position"), np.arange(50) % 25)
        assert file.get_tensor("special").dtype == bool
        facts = file.metadata()
    assert facts["snapshot"] == filled.snapshot_id()
    assert json.loads(facts["step"]) == 8


def test_parquet_is_a_row_a_token(filled, toy, tmp_path):
    written = export(select(filled, steps=[8]), tmp_path / "out", format="parquet")
    # Four layers, the final norm, and twice three blocks.
    assert len(written) == 11
    (path,) = (path for path in written if path.name == "residual.layer_2.parquet")
    assert path.parent.name == "step_8"
    table = pq.read_table(path)
    values = table["values"].combine_chunks().flatten().to_numpy().reshape(50, toy.WIDTH)
    np.testing.assert_array_equal(values, toy.values(8, "residual")[2])
    assert table["token_id"].to_pylist() == list(range(50))
    (path,) = (path for path in written if path.name == "query.block_3.parquet")
    heads = pq.read_table(path)["values"].combine_chunks().flatten().to_numpy()
    expected = toy.values(8, "query")[2]
    np.testing.assert_array_equal(heads.reshape(50, 2, -1).transpose(1, 0, 2), expected)


def test_datasets_are_loaded_from_disk(filled, toy, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    from datasets import load_from_disk

    written = export(select(filled), tmp_path / "out", format="datasets")
    assert sorted(path.name for path in written) == sorted(SITES)
    loaded = load_from_disk(str(tmp_path / "out" / toy.PATH / "residual"))
    loaded.set_format("numpy")
    assert loaded.num_rows == 2 * 4 * 50
    rows = loaded[5 * 50 + 7]  # the second step, 8; its second layer; token 7
    assert (rows["step"], rows["layer"], rows["token_id"], rows["position"]) == (8, 1, 7, 7)
    np.testing.assert_array_equal(rows["values"], toy.values(8, "residual")[1, 7])
    every = np.stack([row["values"] for row in loaded]).reshape(2, 4, 50, toy.WIDTH)
    np.testing.assert_array_equal(every[0], toy.values(0, "residual"))
    heads = load_from_disk(str(tmp_path / "out" / toy.PATH / "query")).with_format("numpy")
    expected = toy.values(0, "query")[2, :, 3].ravel()
    np.testing.assert_array_equal(heads[2 * 50 + 3]["values"], expected)
    assert heads[2 * 50 + 3]["block"] == 3
    entropy = load_from_disk(str(tmp_path / "out" / toy.PATH / "attention_entropy"))
    assert len(entropy[0]["values"]) == 2
    facts = json.loads(loaded.info.description)
    assert facts["snapshot"] == filled.snapshot_id()
    assert facts["causal"] is True


def test_only_what_is_selected_is_written(filled, toy, tmp_path):
    chosen = select(filled, models=["owner/toy"], sites=["residual"], steps=[8], layers=[1, 3])
    (path,) = export(chosen, tmp_path / "a", format="safetensors")
    with safe_open(path, framework="numpy") as file:
        layers = {name for name in file.offset_keys() if "." in name}
    assert layers == {"residual.layer_1", "residual.layer_3"}
    (target,) = export(chosen, tmp_path / "b", format="zarr")
    dataset = xr.open_zarr(target, group=toy.PATH, consolidated=False, chunks=None)
    assert dict(dataset["residual"].sizes) == {
        "step": 1,
        "layer": 2,
        "token": 50,
        "dim": toy.WIDTH,
    }


@pytest.mark.parametrize("kind", ["safetensors", "parquet", "datasets"])
def test_rows_are_streamed(filled, tmp_path, kind, monkeypatch):
    sizes = []
    blocks = Slab.blocks

    def watched(self, *, rows=16):
        for start, values in blocks(self, rows=rows):
            sizes.append(len(values))
            yield start, values

    monkeypatch.setattr(Slab, "blocks", watched)
    export(select(filled, sites=["residual"]), tmp_path / "out", format=kind)
    assert max(sizes) == 16


def test_names_that_are_not_there(filled, tmp_path):
    def refused(**options):
        export(select(filled, **options), tmp_path / "out", format="zarr")

    with pytest.raises(UnknownNameError, match="no step 9 in plays/owner--toy; there are: 0, 8"):
        refused(steps=[9])
    with pytest.raises(UnknownNameError, match="no layer 7 in plays/owner--toy"):
        refused(layers=[7])
    with pytest.raises(UnknownNameError, match="no model 'owner/tyo'"):
        refused(models=["owner/tyo"])
    with pytest.raises(UnknownNameError, match=r"no format 'zar' .*did you mean 'zarr'"):
        export(select(filled), tmp_path / "out", format="zar")


def test_steps_without_a_site_are_left_out_or_refused(toy, memory_uri, tmp_path):
    repository = toy.prepare(memory_uri, ("residual", "final_norm", "query"))
    for step, sites in ((0, ("residual",)), (8, ("residual", "final_norm"))):
        toy.ingest(repository, step, sites=sites)
    chosen = select(repository, sites=["final_norm"])
    (target,) = export(chosen, tmp_path / "all", format="zarr")
    dataset = xr.open_zarr(target, group=toy.PATH, consolidated=False, chunks=None)
    assert dataset["step"].values.tolist() == [8]
    np.testing.assert_array_equal(dataset["final_norm"][0], toy.values(8, "final_norm"))
    for kind in ("zarr", "netcdf", "safetensors", "parquet"):
        chosen = select(repository, sites=["residual", "final_norm"], steps=[0])
        with pytest.raises(UnknownNameError, match=r"no step 0 in .* with the site 'final_norm'"):
            export(chosen, tmp_path / kind, format=kind)
        with pytest.raises(UnknownNameError, match=r"no site 'query' .*: residual, final_norm"):
            export(select(repository, sites=["query"]), tmp_path / kind, format=kind)
        assert not (tmp_path / kind).exists()
    (target,) = export(select(repository, steps=[0]), tmp_path / "one", format="zarr")
    dataset = xr.open_zarr(target, group=toy.PATH, consolidated=False, chunks=None)
    assert list(dataset.data_vars) == ["residual"]


def test_nothing_is_written_over(filled, tmp_path):
    (tmp_path / "kept").write_text("mine")
    with pytest.raises(StoreError, match="it is there already"):
        export(select(filled), tmp_path, format="zarr")
    assert (tmp_path / "kept").read_text() == "mine"


def test_a_failure_leaves_nothing_behind(filled, tmp_path, monkeypatch):
    def fail(self, *, rows=16):
        raise OSError("no space")
        yield

    monkeypatch.setattr(Slab, "blocks", fail)
    with pytest.raises(StoreError, match=r"cannot write to .*out: no space"):
        export(select(filled, sites=["residual"]), tmp_path / "out", format="parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["zarr", "netcdf", "safetensors", "parquet", "datasets"])
def test_names_that_a_disk_does_not_tell_apart_are_refused(toy, memory_uri, tmp_path, kind):
    """On macOS ``Toy`` and ``toy`` are one folder: the second would lie over the first."""
    repository = toy.prepare(memory_uri, ("residual",))
    toy.ingest(repository, 0, sites=("residual",))
    chosen = select(repository)
    twice = [*chosen.datasets(), *chosen.datasets()]
    slabs = [*chosen.slabs(), *chosen.slabs()]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Selection, "datasets", lambda _self: iter(twice))
        patched.setattr(Selection, "slabs", lambda _self: iter(slabs))
        with pytest.raises(StoreError, match="does not tell capitals from small letters"):
            export(chosen, tmp_path / "out", format=kind)
    assert list(tmp_path.iterdir()) == []
