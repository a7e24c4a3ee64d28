import numpy as np
import pytest
import xarray as xr

from store.corpora import CorpusSpec, create_corpus, create_id_corpus
from store.create import ArraySpec, create_model
from store.errors import IdentityConflictError, StoreError, UnknownNameError
from store.repository import Repository
from store.schema import SITES, STEP_COORDINATES, TOKEN_COORDINATES

TEXTS = {"texts": ["to be", "wörld"], "sources": ["a", "b"], "source_starts": [0, 7]}


@pytest.fixture
def repository(memory_uri):
    return Repository.create(memory_uri)


def test_corpus_holds_texts_and_says_what_it_is(repository):
    spec = CorpusSpec("plays", "text", {"unit": "chars", "size": 5}, 3, "aa", {"strip": True})
    create_corpus(repository, spec, **TEXTS)
    group = repository.read()["plays"]
    assert dict(group.attrs) == {
        "modality": "text",
        "chunking": {"unit": "chars", "size": 5},
        "seed": 3,
        "content_sha256": "aa",
        "options": {"strip": True},
    }
    assert list(group["text"][:]) == TEXTS["texts"]
    assert list(group["source"][:]) == ["a", "b"]
    assert list(group["source_start"][:]) == [0, 7]
    # printf 'to be' | sha256sum
    assert group["text_sha256"][0].item().startswith("0af1207eeabd")


def test_same_corpus_again_changes_nothing_another_is_refused(repository, toy):
    create_corpus(repository, toy.CORPUS, **TEXTS)
    before = repository.snapshot_id()
    create_corpus(repository, toy.CORPUS, **TEXTS)
    assert repository.snapshot_id() == before
    other = CorpusSpec("plays", "text", {"unit": "chars", "size": 50}, 0, "ffff")
    with pytest.raises(IdentityConflictError, match=r"chunking\.size: stored 25, wanted 50") as hit:
        create_corpus(repository, other, **TEXTS)
    assert len(hit.value.differences) == 2
    assert repository.snapshot_id() == before


@pytest.mark.parametrize("name", ["a/b", " plays"])
def test_corpus_name_that_is_no_group_name(repository, name):
    with pytest.raises(StoreError, match="cannot name a corpus"):
        create_corpus(repository, CorpusSpec(name, "text", {}, 0, ""), **TEXTS)


def test_empty_corpus(repository, toy):
    with pytest.raises(StoreError, match="needs columns of one positive length"):
        create_corpus(repository, toy.CORPUS, texts=[], sources=[], source_starts=[])


def test_id_corpus_keeps_ids_and_boundaries(repository):
    spec = CorpusSpec("ids", "ids", {}, 0, "bb")
    create_id_corpus(repository, spec, sequences=[np.array([5, 6, 7]), np.array([8])])
    group = repository.read()["ids"]
    assert list(group["token_id"][:]) == [5, 6, 7, 8]
    assert list(group["sequence"][:]) == [0, 0, 0, 1]


def test_model_group_holds_every_declared_coordinate(toy, memory_uri):
    group = toy.prepare(memory_uri, step_capacity=5).read()[toy.PATH]
    assert {*TOKEN_COORDINATES, *STEP_COORDINATES} <= set(group.array_keys())
    assert group["residual"].shape == (5, 4, 50, 64)
    assert group["residual"].chunks == (1, 1, 16, 64)
    assert group["residual"].metadata.dimension_names == SITES["residual"].dims
    # 50 tokens in chunks of 16: four chunks.
    assert group["residual_checksum"].shape == (5, 4, 4)
    assert group["final_norm_checksum"].shape == (5, 4)
    assert list(group["layer"][:]) == [0, 1, 2, 3]
    assert list(group["block"][:]) == [1, 2, 3]
    np.testing.assert_allclose(group["relative_depth"][:], [0, 1 / 3, 2 / 3, 1])
    assert list(group["step"][:]) == [-1] * 5
    assert not group["complete"][:].any()
    assert group.attrs["model"] == "owner/toy"


def test_chunk_rows_follow_from_the_width(toy, memory_uri):
    repository = toy.prepare(memory_uri, attributes={"chunk_rows": 64})
    assert repository.read()[toy.PATH].attrs["chunk_rows"] == 64
    attributes = {"n_blocks": 3, "width": 64}
    create_model(
        repository,
        "plays",
        "other",
        arrays=[toy.array_spec("residual")],
        tokens=toy.tokens(),
        attributes=attributes,
    )
    # All 50 tokens fit one chunk, so the next power of two.
    assert repository.read()["plays/other"].attrs["chunk_rows"] == 64


def test_same_model_again_changes_nothing(toy, memory_uri):
    before = toy.prepare(memory_uri).snapshot_id()
    assert toy.prepare(memory_uri, step_capacity=7).snapshot_id() == before


def test_a_site_can_be_added_later(toy, memory_uri):
    toy.prepare(memory_uri)
    group = toy.prepare(memory_uri, sites=["query"], step_capacity=9).read()[toy.PATH]
    assert group["query"].shape == (64, 3, 2, 50, 32)
    assert group["query"].chunks == (1, 1, 2, 16, 32)


def test_differences_are_spelled_out(toy, memory_uri):
    repository = toy.prepare(memory_uri)
    before = repository.snapshot_id()
    tokens = toy.tokens()
    tokens["token_id"][[7, 9]] += 1
    wide = ArraySpec(SITES["residual"], {**toy.array_spec("residual").sizes, "dim": 65})
    with pytest.raises(IdentityConflictError) as caught:
        create_model(
            repository,
            "plays",
            "owner/toy",
            arrays=[wide],
            tokens=tokens,
            attributes={"n_blocks": 3, "width": 64, "chunk_rows": 16, "causal": True},
        )
    assert caught.value.differences == (
        "causal: stored nothing, wanted true",
        "token_id: 2 of 50 tokens differ, first token 7: stored 7, wanted 8",
        "residual dim: stored 64, wanted 65",
    )
    assert repository.snapshot_id() == before


def test_other_number_of_tokens(toy, memory_uri):
    toy.prepare(memory_uri)
    tokens = {name: column[:40] for name, column in toy.tokens().items()}
    with pytest.raises(IdentityConflictError, match="token_id: stored 50 tokens, wanted 40"):
        toy.prepare(memory_uri, tokens=tokens)


def test_two_ids_that_share_a_group_name(toy, memory_uri):
    toy.prepare(memory_uri)
    with pytest.raises(IdentityConflictError, match='stored "owner/toy", wanted "owner--toy"'):
        toy.prepare(memory_uri, model="owner--toy")


def test_corpus_must_be_there_and_the_right_one(toy, memory_uri):
    repository = toy.prepare(memory_uri)
    options = {"arrays": [], "tokens": toy.tokens()}
    facts = {"n_blocks": 3, "width": 64}
    with pytest.raises(UnknownNameError, match=r"no corpus 'playz'.*did you mean 'plays'"):
        create_model(repository, "playz", "m", attributes=facts, **options)
    facts["corpus_sha256"] = "beef"
    with pytest.raises(IdentityConflictError, match='stored "c0ffee", wanted "beef"'):
        create_model(repository, "plays", "m", attributes=facts, **options)


@pytest.mark.parametrize("name", ["text", "token_id"])
def test_model_name_that_the_corpus_uses_itself(toy, memory_uri, name):
    with pytest.raises(StoreError, match=f"{name!r} is an array of the corpus"):
        toy.prepare(memory_uri, model=name)


@pytest.mark.parametrize("name", ["", "..", "metrics"])
def test_model_id_that_names_no_group(toy, memory_uri, name):
    with pytest.raises(StoreError, match=f"'{name}' cannot name a corpus or a model: expected a "):
        toy.prepare(memory_uri, model=name)


def test_incomplete_descriptions_are_refused(toy, memory_uri):
    tokens = toy.tokens()
    del tokens["special"]
    with pytest.raises(StoreError, match="token coordinates special are missing"):
        toy.prepare(memory_uri, tokens=tokens)
    tokens["special"] = np.zeros(3, bool)
    with pytest.raises(StoreError, match="need one positive length"):
        toy.prepare(memory_uri, tokens=tokens)
    with pytest.raises(StoreError, match="attribute 'width' must be a whole number, got None"):
        toy.prepare(memory_uri, attributes={"width": None, "chunk_rows": 16})


def test_stacks_of_one_model_are_groups_of_their_own(toy, memory_uri):
    toy.prepare(memory_uri, model="t5", stack="encoder")
    group = toy.prepare(memory_uri, model="t5", stack="decoder").read()["plays/t5"]
    assert sorted(group.group_keys()) == ["decoder", "encoder"]
    assert group["encoder"].attrs["model"] == "t5"


def test_xarray_opens_a_group_without_a_warning(toy, memory_uri):
    repository = toy.prepare(memory_uri)
    store = repository.icechunk.readonly_session("main").store
    data = xr.open_zarr(store, group=toy.PATH, consolidated=False, chunks={"token": -1})
    assert data["residual"].dims == ("step", "layer", "token", "dim")
    assert data["residual"].attrs["long_name"] == SITES["residual"].description
