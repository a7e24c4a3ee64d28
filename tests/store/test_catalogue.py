import pytest

from store.catalogue import catalogue, find_step, identity_difference
from store.errors import UnknownNameError
from store.write import reserve_step


def ingest(repository, toy, step, **provenance):
    with reserve_step(repository, toy.PATH, step, identity={"weights": step}) as writer:
        toy.write_all(writer)
        writer.commit(provenance=provenance)


def test_an_empty_store_holds_nothing(toy, memory_uri):
    repository = toy.prepare(memory_uri)
    (held,) = catalogue(repository)
    assert (held.corpus, held.model, held.path, held.stack) == (
        "plays",
        "owner/toy",
        toy.PATH,
        None,
    )
    assert (held.n_tokens, held.layers, held.width) == (50, (0, 1, 2, 3), 64)
    assert (held.sites, held.steps, held.stored_bytes) == ((), (), 0)


def test_sites_are_those_that_a_step_holds(toy, memory_uri):
    repository = toy.prepare(memory_uri, ("residual", "final_norm", "query"))
    toy.ingest(repository, 0, sites=("residual",))
    toy.ingest(repository, 8, sites=("final_norm",))
    (held,) = catalogue(repository)
    assert held.sites == ("residual", "final_norm")


def test_steps_are_listed_in_order_with_what_is_being_written(toy, memory_uri):
    repository = toy.prepare(memory_uri)
    ingest(repository, toy, 8, revision="r8", loss=2.5)
    ingest(repository, toy, 2, revision="r2")
    with reserve_step(repository, toy.PATH, 4, identity={}):
        (held,) = catalogue(repository)
    assert [(item.step, item.complete, item.revision) for item in held.steps] == [
        (2, True, "r2"),
        (4, False, ""),
        (8, True, "r8"),
    ]
    assert held.steps[2].loss == 2.5
    assert held.steps[2].identity == {"weights": 8}
    assert held.stored_bytes == sum(item.stored_bytes for item in held.steps) > 0


def test_same_weights_and_shared_files_are_flagged(toy, memory_uri):
    repository = toy.prepare(memory_uri)
    ingest(repository, toy, 1, weights_sha256="a", weight_files={"x": "1", "y": "2"})
    ingest(repository, toy, 2, weights_sha256="a", weight_files={"x": "1", "y": "2"})
    ingest(repository, toy, 3, weights_sha256="b", weight_files={"x": "1", "y": "3"})
    ingest(repository, toy, 4, weights_sha256="c", weight_files={"x": "4", "y": "5"})
    (held,) = catalogue(repository)
    assert {item.step: (item.duplicates, item.shared) for item in held.steps} == {
        1: ((2,), (3,)),
        2: ((1,), (3,)),
        3: ((), (1, 2)),
        4: ((), ()),
    }


def test_stacks_and_models_are_told_apart(toy, memory_uri):
    toy.prepare(memory_uri)
    toy.prepare(memory_uri, model="t5", stack="encoder")
    repository = toy.prepare(memory_uri, model="t5", stack="decoder")
    assert [(item.path, item.stack) for item in catalogue(repository, corpus="plays")] == [
        ("plays/owner--toy", None),
        ("plays/t5/encoder", "encoder"),
        ("plays/t5/decoder", "decoder"),
    ]
    for name in ("owner/toy", "owner--toy"):
        assert [item.path for item in catalogue(repository, model=name)] == [toy.PATH]


def test_unknown_names_are_suggested(toy, memory_uri):
    repository = toy.prepare(memory_uri)
    with pytest.raises(UnknownNameError, match=r"no corpus 'play'.*did you mean 'plays'"):
        catalogue(repository, corpus="play")
    with pytest.raises(UnknownNameError, match=r"no model 'owner/toys'.*did you mean 'owner/toy'"):
        catalogue(repository, model="owner/toys")


def test_find_step_finds_complete_steps_only(toy, memory_uri):
    repository = toy.prepare(memory_uri)
    ingest(repository, toy, 2)
    assert find_step(repository, toy.PATH, 2).sites == ("residual", "final_norm")
    assert find_step(repository, toy.PATH, 3) is None
    with reserve_step(repository, toy.PATH, 3, identity={}):
        assert find_step(repository, toy.PATH, 3) is None


def test_the_past_can_be_listed(toy, memory_uri):
    repository = toy.prepare(memory_uri)
    before = repository.snapshot_id()
    ingest(repository, toy, 2)
    assert catalogue(repository, snapshot=before)[0].steps == ()


def test_identity_difference_names_the_part():
    stored = {"weights": {"a": "1", "b": "2"}, "dtype": "float32", "same": [1, 2]}
    wanted = {"weights": {"a": "1", "b": "3"}, "attention": "sdpa", "same": [1, 2]}
    assert identity_difference(stored, wanted) == [
        'attention: stored nothing, wanted "sdpa"',
        'dtype: stored "float32", wanted nothing',
        'weights.b: stored "2", wanted "3"',
    ]
    assert identity_difference(stored, stored) == []
