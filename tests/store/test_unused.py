"""Models of which nothing was stored are taken back, and nothing else is."""

from __future__ import annotations

from store.repository import Repository
from store.unused import remove_unused_model
from store.write import reserve_step


def test_a_model_without_steps_goes_and_can_come_back_with_other_tokens(memory_uri, toy):
    repository = toy.prepare(memory_uri)
    assert remove_unused_model(repository, toy.PATH)
    assert "owner--toy" not in repository.read()["plays"]
    assert not remove_unused_model(repository, toy.PATH)
    tokens = toy.tokens()
    tokens["token_id"] = tokens["token_id"] + 1
    toy.prepare(memory_uri, tokens=tokens)
    assert repository.read()[toy.PATH]["token_id"][0] == 1


def test_a_reserved_step_keeps_its_model(memory_uri, toy):
    repository = toy.prepare(memory_uri)
    with reserve_step(repository, toy.PATH, 5, identity={}):
        assert not remove_unused_model(repository, toy.PATH)
    assert remove_unused_model(repository, toy.PATH)


def test_a_stored_step_keeps_its_model(memory_uri, toy):
    repository = toy.prepare(memory_uri)
    with reserve_step(repository, toy.PATH, 5, identity={}) as writer:
        toy.write_all(writer)
        writer.commit(provenance={})
    before = repository.snapshot_id()
    assert not remove_unused_model(repository, toy.PATH)
    assert repository.snapshot_id() == before


def test_the_stacks_of_a_model_are_looked_at_by_themselves(memory_uri, toy):
    repository = toy.prepare(memory_uri, stack="encoder")
    toy.prepare(memory_uri, stack="decoder")
    path = f"{toy.PATH}/encoder"
    with reserve_step(repository, path, 5, identity={}) as writer:
        toy.write_all(writer)
        writer.commit(provenance={})
    assert remove_unused_model(Repository.open(memory_uri), toy.PATH)
    assert sorted(repository.read()[toy.PATH].group_keys()) == ["encoder"]
