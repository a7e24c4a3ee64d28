import concurrent.futures

import dask
import numpy as np
import pytest
import xarray as xr
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from store import open_metrics
from store.errors import StoreError, UnknownNameError
from store.lazy import StoredTable
from store.metrics import Definition, missing_metrics, provenance, read_metrics, write_metrics
from store.repository import Repository
from store.retention import drop_activations
from store.schema import SHARED_WEIGHTS
from store.write import reserve_step

STEPS = (0, 8, 64)
LAYERS = (0, 1, 2, 3)
POPULATIONS = ("all", "content", "unit")
COSINE = Definition("average_cosine", 1)
DIMENSION = Definition("two_nn", 2, {"seed": 0, "sample": 100})
DIMS = ("step", "layer", "population")


def box(steps, layers=LAYERS, populations=POPULATIONS, seed=0, names=("average_cosine",)):
    """Results with their standard errors, counts and a spectrum, all different numbers."""
    random = np.random.default_rng([seed, len(steps), *layers])
    shape = (len(steps), len(layers), len(populations))
    variables = {}
    for name in names:
        attrs = {"long_name": f"long {name}", "units": "1", "version": 1}
        variables[name] = (DIMS, random.random(shape), attrs)
        variables[f"{name}_stderr"] = (DIMS, random.random(shape))
    variables["n"] = (DIMS, random.integers(1, 100, shape), {"long_name": "rows"})
    variables["spectrum"] = ((*DIMS, "component"), random.random((*shape, 5)))
    labels = {
        "step": list(steps),
        "layer": list(layers),
        "population": list(populations),
        "component": [1, 2, 3, 4, 5],
    }
    return xr.Dataset(variables, labels, attrs={"made_by": "a test"})


def hold(repository, path, steps, variant=0):
    """Make steps complete without any activation: metrics never look at those."""

    def change(root):
        group = root[path]
        for slot, step in enumerate(steps):
            group["step"][slot] = step
            group["weights_sha256"][slot] = str(step)
            group["identity"][slot] = f'{{"variant": {variant}}}'
            group["complete"][slot] = True

    repository.update("hold steps", change)


@pytest.fixture
def repository(toy, memory_uri):
    repository = toy.prepare(memory_uri)
    hold(repository, toy.PATH, STEPS)
    return repository


def write(repository, path, results, definitions=(COSINE,), snapshot=None):
    snapshot = snapshot or repository.snapshot_id()
    return write_metrics(repository, path, results, snapshot=snapshot, definitions=definitions)


def read(repository, path):
    """The stored results without what reading adds."""
    return read_metrics(repository, path).drop_vars(["relative_depth", *SHARED_WEIGHTS]).load()


def as_stored(results):
    """Integers come back as float64, and the steps in ascending order."""
    counts = {name: results[name].astype(float) for name in results if results[name].dtype == int}
    return results.assign(counts).sortby("step")


def test_a_model_without_metrics_has_none(repository, toy):
    assert read_metrics(repository, toy.PATH) is None
    with pytest.raises(UnknownNameError, match="no model 'owner--tyo'"):
        read_metrics(repository, "plays/owner--tyo")


def test_results_come_back_as_they_were_with_attributes(repository, toy):
    results = box((64, 0))
    snapshot = write(repository, toy.PATH, results)
    xr.testing.assert_identical(read(repository, toy.PATH), as_stored(results))
    assert repository.snapshot_id() == snapshot
    depth = read_metrics(repository, toy.PATH)["relative_depth"]
    np.testing.assert_allclose(depth, [0, 1 / 3, 2 / 3, 1])


def test_what_a_box_does_not_cover_stays(repository, toy):
    first = box((0, 8), populations=("all", "unit"))
    second = box((8, 64), layers=(1, 3), populations=("content", "all"), seed=1)
    write(repository, toy.PATH, first)
    write(repository, toy.PATH, second)
    expected = as_stored(second).combine_first(as_stored(first))
    found = read(repository, toy.PATH)
    assert found["population"].values.tolist() == ["all", "unit", "content"]
    xr.testing.assert_equal(found.sortby("population"), expected.sortby("population"))


def test_nan_is_a_result_and_replaces_what_was_there(repository, toy):
    write(repository, toy.PATH, box((0,)))
    undefined = box((0,), layers=(2,), populations=("all",))
    undefined["average_cosine"][:] = np.nan
    write(repository, toy.PATH, undefined)
    assert np.isnan(read(repository, toy.PATH)["average_cosine"].sel(layer=2, population="all"))
    assert not needed(repository, toy.PATH, (0,)).any()


@given(order=st.permutations(range(6)), joined=st.integers(1, 6))
@settings(max_examples=4, deadline=None, phases=[Phase.generate])
def test_the_order_and_grouping_of_writes_do_not_matter(toy, order, joined):
    # Six boxes that do not overlap, written a few at a time in any order.
    pieces = [box((step,), layers=layers, seed=step) for step in STEPS for layers in ((0, 1), (2,))]
    repository = toy.prepare("memory://metrics-" + "".join(map(str, (*order, joined))))
    hold(repository, toy.PATH, STEPS)
    for first in range(0, 6, joined):
        write(repository, toy.PATH, [pieces[at] for at in order[first : first + joined]])
    expected = xr.combine_by_coords([as_stored(piece) for piece in pieces])
    xr.testing.assert_equal(read(repository, toy.PATH), expected.drop_attrs())


def needed(repository, path, steps, definitions=(COSINE,), populations=POPULATIONS):
    return missing_metrics(
        repository,
        path,
        definitions,
        snapshot=repository.snapshot_id(),
        steps=steps,
        layer=LAYERS,
        population=populations,
    )


def test_everything_is_needed_at_first_and_nothing_afterwards(repository, toy):
    before = needed(repository, toy.PATH, STEPS)
    assert before.dims == ("metric", *DIMS)
    assert before["metric"].values.tolist() == ["average_cosine"]
    assert before.all()
    write(repository, toy.PATH, box(STEPS))
    assert not needed(repository, toy.PATH, STEPS).any()


def test_only_what_was_not_computed_is_needed(repository, toy):
    write(repository, toy.PATH, box((0,), layers=(1, 3), populations=("all",)))
    found = needed(repository, toy.PATH, (0, 8))
    assert not found.sel(step=0, layer=[1, 3], population="all").any()
    # 2 steps x 4 layers x 3 populations, less the two that are there.
    assert int(found.sum()) == 22


def test_another_version_or_setting_makes_a_value_stale(repository, toy):
    definitions = (COSINE, DIMENSION)
    write(repository, toy.PATH, box(STEPS, names=("average_cosine", "two_nn")), definitions)
    assert not needed(repository, toy.PATH, STEPS, definitions).any()
    newer = needed(repository, toy.PATH, STEPS, (Definition("average_cosine", 2), DIMENSION))
    assert newer.sel(metric="average_cosine").all()
    assert not newer.sel(metric="two_nn").any()
    larger = Definition("two_nn", 2, {"seed": 0, "sample": 200})
    assert needed(repository, toy.PATH, STEPS, (larger,)).all()
    same = Definition("two_nn", 2, {"sample": 100, "seed": 0})
    assert not needed(repository, toy.PATH, STEPS, (same,)).any()


def test_a_superseded_step_makes_its_values_stale(repository, toy):
    write(repository, toy.PATH, box(STEPS))
    hold(repository, toy.PATH, (0, 8), variant=1)
    found = needed(repository, toy.PATH, STEPS)
    assert found.sel(step=[0, 8]).all()
    assert not found.sel(step=64).any()


def test_values_computed_before_a_step_was_superseded_are_stale(repository, toy):
    pinned = repository.snapshot_id()
    hold(repository, toy.PATH, (0, 8), variant=1)
    write(repository, toy.PATH, box(STEPS), snapshot=pinned)
    assert needed(repository, toy.PATH, STEPS).sel(step=8).all()


def test_needing_what_cannot_be_read_is_an_error(repository, toy):
    with pytest.raises(UnknownNameError, match=r"no step 9 in plays/owner--toy; there are: 0, 8"):
        needed(repository, toy.PATH, (9,))
    with pytest.raises(StoreError, match=r"\['component'\] do not key metric values"):
        missing_metrics(
            repository,
            toy.PATH,
            (COSINE,),
            snapshot=repository.snapshot_id(),
            steps=(0,),
            component=(1,),
        )


def test_every_value_says_where_it_comes_from(repository, toy):
    first = repository.snapshot_id()
    write(repository, toy.PATH, box((0, 64), names=("two_nn",)), (DIMENSION,))
    second = repository.snapshot_id()
    write(repository, toy.PATH, box((64,), layers=(3,), names=("two_nn",)), (DIMENSION,))
    found = provenance(repository, toy.PATH, "two_nn")
    assert found["step"].values.tolist() == [0, 64]
    assert set(found["source_snapshot"].sel(step=0).values.flat) == {first}
    assert set(found["source_snapshot"].sel(step=64, layer=3).values.flat) == {second}
    assert (found["source_version"] == 2).all()
    assert (found["source_settings"] == '{"sample":100,"seed":0}').all()
    assert set(found["source_weights_sha256"].sel(step=64).values.flat) == {"64"}
    write(repository, toy.PATH, box((8,), layers=(0,), names=("two_nn",)), (DIMENSION,))
    absent = provenance(repository, toy.PATH, "two_nn").sel(step=8, layer=1)
    assert (absent["source_version"] == 0).all()
    assert set(absent["source_snapshot"].values.flat) == {""}


def test_the_provenance_of_an_unknown_metric(repository, toy):
    with pytest.raises(UnknownNameError, match=r"no metric 'two_n' .*there are none"):
        provenance(repository, toy.PATH, "two_n")
    write(repository, toy.PATH, box((0,), names=("two_nn",)), (DIMENSION,))
    with pytest.raises(UnknownNameError, match=r"no metric 'two_n' .*did you mean 'two_nn'"):
        provenance(repository, toy.PATH, "two_n")


def test_results_that_do_not_fit_are_refused_and_nothing_is_written(repository, toy):
    before = repository.snapshot_id()
    with pytest.raises(StoreError, match="need labels along 'step'"):
        write(repository, toy.PATH, xr.Dataset({"average_cosine": ("layer", [0.5])}))
    with pytest.raises(StoreError, match=r"metric 'name' is <U1 over \('step',\)"):
        write(repository, toy.PATH, xr.Dataset({"name": ("step", ["a"])}, {"step": [0]}))
    with pytest.raises(StoreError, match=r"no metric results"):
        write(repository, toy.PATH, [])
    with pytest.raises(UnknownNameError, match="no step 5"):
        write(repository, toy.PATH, box((5,)))
    assert repository.snapshot_id() == before
    write(repository, toy.PATH, box((0,)))
    flat = xr.Dataset({"average_cosine": ("step", [0.5])}, {"step": [0]})
    with pytest.raises(StoreError, match=r"has the dimensions \('step', 'layer', 'population'\)"):
        write(repository, toy.PATH, flat)


def test_results_outlive_the_activations(repository, toy):
    results = box((8,))
    write(repository, toy.PATH, results)

    def drop(root):
        group = root[toy.PATH]
        group["complete"][:] = False

    repository.update("drop every step", drop)
    xr.testing.assert_equal(read(repository, toy.PATH), as_stored(results).drop_attrs())


def write_apart(uri, path, step, seed):
    """Write one step through a handle of its own, as another process would."""
    repository = Repository.open(uri)
    write(repository, path, box((step,), seed=seed))


def test_writers_at_once_lose_nothing(toy, disk_repository):
    steps = range(6)
    hold(disk_repository, toy.PATH, steps)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        done = [
            pool.submit(write_apart, disk_repository.uri, toy.PATH, step, step) for step in steps
        ]
        for future in done:
            future.result()
    expected = xr.concat([as_stored(box((step,), seed=step)) for step in steps], "step")
    xr.testing.assert_equal(read(disk_repository, toy.PATH), expected)


@pytest.fixture
def two_models(repository, toy):
    toy.prepare(repository.uri, model="other")
    write(repository, toy.PATH, box((0, 64)))
    path = "plays/other"
    hold(repository, path, (0, 2))
    extra = box((0, 2), layers=(0, 1), seed=5, names=("average_cosine", "two_nn"))
    write(repository, path, extra, (COSINE, DIMENSION))
    return repository, box((0, 64)), extra


def test_models_lie_side_by_side_joined_by_label(two_models):
    repository, first, second = two_models
    found = open_metrics(repository.uri, corpus="plays")
    assert found["model"].values.tolist() == ["other", "owner/toy"]
    expected = xr.concat(
        [second, first], xr.DataArray(["other", "owner/toy"], dims="model"), join="outer"
    )
    found_values = found.drop_vars(["relative_depth", *SHARED_WEIGHTS]).drop_attrs()
    expected = expected.drop_attrs()
    xr.testing.assert_equal(found_values.load(), expected.sel(population=found["population"]))
    assert np.isnan(found["two_nn"].sel(model="owner/toy")).all()
    assert found["average_cosine"].attrs["long_name"] == "long average_cosine"
    np.testing.assert_allclose(found["relative_depth"], [[0, 1 / 3, 2 / 3, 1]] * 2)
    assert found.attrs["snapshot"] == repository.snapshot_id()


def test_opening_metrics_reads_none(two_models, monkeypatch):
    repository, *_ = two_models

    def refuse(*_arguments, **_options):
        raise AssertionError("something was read")

    monkeypatch.setattr(StoredTable, "read_outer", refuse)
    with dask.config.set(scheduler=refuse):
        assert "average_cosine" in str(open_metrics(repository.uri, corpus="plays"))


def test_metrics_of_models_asked_for(two_models):
    repository, first, _ = two_models
    found = open_metrics(repository.uri, corpus="plays", models=["owner/toy"])
    assert found["step"].values.tolist() == [0, 64]
    np.testing.assert_array_equal(found["average_cosine"][0], first["average_cosine"])
    with pytest.raises(UnknownNameError, match=r"no model 'othr' in plays.*did you mean 'other'"):
        open_metrics(repository.uri, corpus="plays", models=["othr"])


def test_a_corpus_without_metrics_is_empty(repository):
    found = open_metrics(repository.uri, corpus="plays")
    assert dict(found.sizes) == {"model": 0}


def test_steps_that_share_weights_are_told_with_their_results(toy, memory_uri):
    repository = toy.prepare(memory_uri)
    for step, shards in ((0, "ab"), (8, "cb"), (16, "ab"), (64, "d")):
        with reserve_step(repository, toy.PATH, step, identity={"step": step}) as writer:
            toy.write_all(writer)
            files = {f"shard-{number}": digest for number, digest in enumerate(shards)}
            writer.commit(provenance={"weights_sha256": shards, "weight_files": files})
    write(repository, toy.PATH, box((0, 8, 16, 64)))
    for found in (
        read_metrics(repository, toy.PATH),
        open_metrics(repository.uri, corpus="plays").isel(model=0),
    ):
        assert found["same_weights"].values.tolist() == ["16", "", "0", ""]
        assert found["shared_weights"].values.tolist() == ["8", "0 16", "8", ""]
        assert found["average_cosine"].sel(step=16)["same_weights"].item() == "0"
    # Results outlive their activations, and still say that they are of the same weights.
    drop_activations(repository, toy.PATH, steps=[0])
    found = read_metrics(repository, toy.PATH)
    assert found["same_weights"].values.tolist() == ["16", "", "0", ""]
