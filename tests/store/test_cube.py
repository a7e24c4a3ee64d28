import dask
import numpy as np
import pytest

from store import cube
from store.chunks import ActivationArray
from store.create import ArraySpec, create_model
from store.errors import StoreNotFoundError, UnknownNameError
from store.schema import SITES
from store.write import reserve_step

WIDE = {"layer": 3, "token": 30, "dim": 96}
"""Another model: fewer layers and tokens than the toy, but wider."""


def wide_values(step):
    return np.random.default_rng([step, 9]).standard_normal((3, 30, 96), dtype=np.float32)


@pytest.fixture(scope="module")
def filled(toy):
    repository = toy.prepare("memory://cube")
    for step in (512, 0):
        toy.ingest(repository, step)
    create_model(
        repository,
        "plays",
        "wide",
        arrays=[ArraySpec(SITES["residual"], WIDE)],
        tokens={name: values[:30] for name, values in toy.tokens().items()},
        attributes={"n_blocks": 2, "width": 96, "chunk_rows": 8},
    )
    for step in (0, 3):
        with reserve_step(repository, "plays/wide", step, identity={}) as writer:
            writer.write_block("residual", 0, wide_values(step))
            writer.commit(provenance={"revision": f"wide{step}"})
    return repository


def expected(toy):
    """(model, step, layer, token, dim) over the steps 0, 3, 512, by hand."""
    whole = np.full((2, 3, 4, 50, 96), np.nan, dtype=np.float32)
    whole[0, 0, :, :, : toy.WIDTH] = toy.values(0, "residual")
    whole[0, 2, :, :, : toy.WIDTH] = toy.values(512, "residual")
    whole[1, 0, :3, :30] = wide_values(0)
    whole[1, 1, :3, :30] = wide_values(3)
    return whole


def test_models_are_joined_by_label_and_padded_with_nan(filled, toy):
    array = cube(filled.uri, corpus="plays")
    assert array.dims == ("model", "step", "layer", "token", "dim")
    assert array["model"].values.tolist() == ["owner/toy", "wide"]
    assert array["step"].values.tolist() == [0, 3, 512]
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array, expected(toy))


def test_one_chunk_a_model_step_and_layer_and_nothing_computed(filled, monkeypatch):
    def refuse(*_arguments, **_options):
        raise AssertionError("something was read while a graph was built")

    monkeypatch.setattr(ActivationArray, "read", refuse)
    with dask.config.set(scheduler=refuse):
        array = cube(filled.uri, corpus="plays")
        str(array.mean("token").sel(model="wide"))
    assert array.chunks == ((1, 1), (1, 1, 1), (1, 1, 1, 1), (50,), (96,))


def test_selecting_reads_only_what_is_selected(filled, monkeypatch):
    array = cube(filled.uri, corpus="plays")
    done = []
    read = ActivationArray.read

    def counted(self, *place, **options):
        done.append((self.path, *place))
        return read(self, *place, **options)

    monkeypatch.setattr(ActivationArray, "read", counted)
    rows = array.sel(model="wide", step=3, layer=2, token=slice(10, 12)).values
    np.testing.assert_array_equal(rows, wide_values(3)[2, 10:12])
    # Step 3 of the second model was written second, into slot 1.
    assert done == [("plays/wide", 1, 2, 10, 12)]
    assert np.isnan(array.sel(model="wide", step=512).values).all()
    assert len(done) == 1


def test_coordinates_are_of_each_model(filled):
    array = cube(filled.uri, corpus="plays")
    np.testing.assert_allclose(
        array["relative_depth"], [[0, 1 / 3, 2 / 3, 1], [0, 1 / 2, 1, np.nan]]
    )
    assert array["position"].dims == ("model", "token")
    np.testing.assert_array_equal(array["position"][0], np.arange(50) % 25)
    np.testing.assert_array_equal(array["position"][1, :30], np.arange(30) % 25)
    np.testing.assert_array_equal(array["position"][1, 30:], -1)
    assert array["revision"].values.tolist() == [
        ["step0", "", "step512"],
        ["wide0", "wide3", ""],
    ]
    assert array.attrs["corpus"] == "plays"
    assert array.attrs["snapshot"] == filled.snapshot_id()


def test_a_site_some_models_lack(filled, toy):
    array = cube(filled.uri, corpus="plays", site="final_norm")
    assert array.dims == ("model", "step", "token", "dim")
    assert array["model"].values.tolist() == ["owner/toy"]
    np.testing.assert_array_equal(array.sel(step=512)[0], toy.values(512, "final_norm"))


@pytest.mark.parametrize("name", ["owner/toy", "owner--toy"])
def test_models_are_chosen_by_id_or_group(filled, name):
    assert cube(filled.uri, corpus="plays", models=[name])["model"].values.tolist() == ["owner/toy"]


def test_stacks_are_chosen_together_or_alone(toy, memory_uri):
    for stack in ("encoder", "decoder"):
        toy.prepare(memory_uri, model="owner/t5", stack=stack)
    both = cube(memory_uri, corpus="plays", models=["owner/t5"])
    assert both["model"].values.tolist() == ["owner/t5/decoder", "owner/t5/encoder"]
    assert both["step"].dtype == np.int64
    one = cube(memory_uri, corpus="plays", models=["owner/t5/encoder"])
    assert one["model"].values.tolist() == ["owner/t5/encoder"]


def test_names_that_are_not_there(filled, tmp_path):
    with pytest.raises(UnknownNameError, match=r"no model 'wyde' in plays.*did you mean 'wide'"):
        cube(filled.uri, corpus="plays", models=["wyde"])
    with pytest.raises(UnknownNameError, match=r"no corpus 'play'.*did you mean 'plays'"):
        cube(filled.uri, corpus="play")
    with pytest.raises(UnknownNameError, match=r"no site 'residul'.*did you mean 'residual'"):
        cube(filled.uri, corpus="plays", site="residul")
    with pytest.raises(UnknownNameError, match="no site 'query' in the models of plays"):
        cube(filled.uri, corpus="plays", site="query")
    with pytest.raises(StoreNotFoundError, match="does not exist"):
        cube(tmp_path / "nothing", corpus="plays")
