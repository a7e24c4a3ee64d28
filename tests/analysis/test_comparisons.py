"""Layers, steps and models compared over the same tokens, and kept while they are valid."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from analysis.compare import compare
from analysis.comparisons import Comparison, comparison_bytes, run_comparison
from analysis.errors import InputError, NonFiniteRowsError, UnknownMetricError
from analysis.matrices import MEASURES, Subject, matrix_of
from store.create import ArraySpec, create_model
from store.errors import UnknownNameError
from store.metrics import read_metrics
from store.schema import SITES
from store.slab import slabs
from store.write import StepWriter, reserve_step


def subject(stored, steps=(0, 10), layers=(0, 1, 2)) -> Subject:
    return Subject(stored.path, tuple(steps), tuple(layers))


def results(stored, path=None):
    found = read_metrics(stored.repository, path or stored.path)
    assert found is not None
    return found.load()


def test_layers_of_a_checkpoint(stored) -> None:
    twin = np.stack([stored.values[0][0], stored.values[0][0] * 2, stored.values[0][1]])
    stored.add_step(20, twin)
    report = compare(stored.repository, "layers", [subject(stored, (20,))], sample=200)
    assert (report.computed, report.up_to_date, report.slabs) == (1, 0, 3)
    found = results(stored)
    assert found["layer_cka"].dims == ("step", "layer", "other_layer")
    at = found.sel(step=20)
    for name in ("cka", "procrustes", "linear_r2", "neighborhood_overlap"):
        pairs = at[f"layer_{name}"]
        assert pairs.sel(layer=0, other_layer=1).item() == pytest.approx(1, abs=1e-5), name
        assert pairs.sel(layer=0, other_layer=2).item() < 0.9, name
    assert {f"layer_{name}" for name in MEASURES} <= set(found.data_vars)
    assert at["layer_n"] == 200


def test_what_is_current_is_not_computed_again(stored) -> None:
    compare(stored.repository, "layers", [subject(stored)], sample=100)
    again = compare(stored.repository, "layers", [subject(stored)], sample=100, plan=True)
    assert (again.computed, again.up_to_date) == (0, 2)
    other_sample = compare(stored.repository, "layers", [subject(stored)], sample=99, plan=True)
    assert other_sample.computed == 2
    stored.add_step(10, stored.values[10] + 1, weights="new")
    changed = compare(stored.repository, "layers", [subject(stored)], sample=100, plan=True)
    assert (changed.computed, changed.up_to_date) == (1, 1)


def test_steps_of_every_layer(stored) -> None:
    stored.add_step(20, stored.values[0])
    report = compare(stored.repository, "steps", [subject(stored, (0, 10, 20))], sample=200)
    assert (report.computed, report.slabs) == (3, 9)
    cka = results(stored)["step_cka"]
    assert cka.dims == ("step", "layer", "other_step")
    np.testing.assert_allclose(cka.sel(step=0, other_step=20), 1, rtol=1e-5)
    assert (cka.sel(step=0, other_step=10) < 0.9).all()
    stored.add_step(30, stored.values[10])
    longer = [subject(stored, (0, 10, 20, 30))]
    assert compare(stored.repository, "steps", longer, sample=200, plan=True).computed == 3


@pytest.fixture
def two(stored):
    """Beside the model of 25 tokens a sequence, one that cuts the same texts twice as finely."""
    n = len(stored.tokens["token_id"])
    ends = {}
    for path, pieces in ((stored.path, 1), ("plays/owner--fine", 2)):
        count = n * pieces
        tokens = {name: np.repeat(values, pieces) for name, values in stored.tokens.items()}
        tokens["char_end"] = (4 // pieces) * (np.arange(count, dtype=np.int32) + 1)
        tokens["char_start"] = tokens["char_end"] - 4 // pieces
        ends[path] = tokens
    for path, name, pieces in (("plays/coarse", "coarse", 1), ("plays/fine", "fine", 2)):
        tokens = ends[stored.path if pieces == 1 else "plays/owner--fine"]
        spec = {"layer": 2, "token": n * pieces, "dim": 8}
        attributes = {"n_blocks": 1, "width": 8, "chunk_rows": 64, "causal": True}
        attributes["corpus_sha256"] = "c0ffee"
        arrays = [ArraySpec(SITES["residual"], spec)]
        create_model(
            stored.repository, "plays", name, arrays=arrays, tokens=tokens, attributes=attributes
        )
        values = np.repeat(stored.values[0][:2], pieces, axis=1)
        if pieces == 2:
            # Only the last piece of a token has seen all of it.
            values[:, ::2] = np.random.default_rng(1).standard_normal(values[:, ::2].shape)
        writer = reserve_step(stored.repository, path, 0, identity={"weights": name})
        assert isinstance(writer, StepWriter)
        with writer:
            for start in range(0, values.shape[1], 64):
                writer.write_block("residual", start, values[:, start : start + 64])
            writer.commit(provenance={"revision": "r", "weights_sha256": name})
    return [Subject("plays/coarse", (0,), (0, 1)), Subject("plays/fine", (0,), (0, 1))]


def test_models_are_compared_where_their_tokens_end_together(stored, two) -> None:
    report = compare(stored.repository, "models", two, sample=200)
    assert (report.computed, report.slabs) == (1, 4)
    coarse, fine = (results(stored, one.path) for one in two)
    cka = coarse["model_cka"]
    assert cka.dims == ("step", "layer", "other_model", "other_layer")
    table = cka.sel(step=0, other_model="fine").values
    np.testing.assert_allclose(table.diagonal(), 1, rtol=1e-5)
    assert table[0, 1] < 0.9
    back = fine["model_cka"].sel(step=0, other_model="coarse").values
    np.testing.assert_allclose(back, table.T)
    r2 = coarse["model_linear_r2"].sel(step=0, other_model="fine").values
    assert r2.diagonal() == pytest.approx(1, abs=1e-5)
    assert "model_linear_r2_increment" not in coarse
    assert compare(stored.repository, "models", two, sample=200, plan=True).up_to_date == 1


def test_nothing_to_compare_with_is_said(stored) -> None:
    with pytest.raises(InputError, match="no two models of one corpus"):
        compare(stored.repository, "models", [subject(stored)])
    with pytest.raises(InputError, match="no two steps of one model"):
        compare(stored.repository, "steps", [subject(stored, (0,))])
    with pytest.raises(UnknownNameError, match="step"):
        compare(stored.repository, "layers", [subject(stored, (5,))])


def test_rows_that_are_not_finite_are_named(stored) -> None:
    values = stored.values[0].copy()
    values[0, 30, 0] = np.nan
    stored.add_step(40, values, allow_nonfinite=True)
    with pytest.raises(NonFiniteRowsError, match="step 40"):
        compare(stored.repository, "layers", [subject(stored, (40,))])


def test_too_few_distinct_rows_leave_neighbours_out(stored) -> None:
    few = np.round(stored.values[0][:, :, :1] / 40).repeat(8, axis=2).astype(np.float32)
    stored.add_step(50, np.stack([few[0], stored.values[0][1], stored.values[0][2]]))
    compare(stored.repository, "layers", [subject(stored, (50,))], sample=200)
    found = results(stored).sel(step=50)
    assert found["layer_neighbors_n"] == 0
    assert found["layer_neighborhood_overlap"].isnull().all()
    assert found["layer_cka"].sel(layer=1, other_layer=2).notnull()


def test_matrices_by_name(stored) -> None:
    compare(stored.repository, "layers", [subject(stored, (0,))], sample=100)
    found = results(stored)
    assert matrix_of(found, "layers", "cka").attrs["long_name"] == "linear CKA"
    with pytest.raises(UnknownMetricError, match="did you mean 'cka'"):
        matrix_of(found, "layers", "ckaa")
    with pytest.raises(InputError, match="run `actlas compare steps` first"):
        matrix_of(found, "steps", "cka")


def test_a_comparison_keeps_to_the_memory_it_says(make_stored, memory_uri) -> None:
    stored = make_stored(memory_uri, n_sequences=80, n_layers=6, width=96)
    repository, path = stored.repository, stored.path
    layers = tuple(slabs(repository, path, steps=[0], snapshot=repository.snapshot_id()))
    task = Comparison(layers, (), 2000, 0)
    run_comparison(task)  # compiles
    tracemalloc.start()
    run_comparison(task)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.3 * comparison_bytes(task) < peak < comparison_bytes(task)
    whole = subject(stored, (0,), range(6))
    with pytest.raises(InputError, match=r"comparing 6 representations .* stated is 1 MiB"):
        compare(repository, "layers", [whole], memory=1 << 20)
    assert read_metrics(repository, path) is None
