"""Tokens of dumped tensors against the corpus that they are put under."""

from __future__ import annotations

import numpy as np
import pytest
import zarr

from store import open_store
from store.corpora import CorpusSpec, create_corpus, create_id_corpus
from store.errors import StoreError
from store.foreign import LabelledTensor, import_tensors
from store.foreign.agreement import require_agreement
from store.repository import Repository

IDS = [[5, 6, 7], [8, 9]]


def columns(sequence, token_id, **others):
    """Token coordinates with the defaults of an import."""
    sequence = np.array(sequence)
    unknown = np.full(len(sequence), -1)
    position = np.concatenate([np.arange(n) for n in np.bincount(sequence)])
    own = {"char_start": unknown, "char_end": unknown, "position": position}
    return {**own, "sequence": sequence, "token_id": np.array(token_id), **others}


@pytest.fixture
def ids(memory_uri) -> zarr.Group:
    repository = Repository.create(memory_uri)
    spec = CorpusSpec("ids", "ids", {"unit": "as given"}, 0, "a")
    create_id_corpus(repository, spec, sequences=[np.array(one) for one in IDS])
    return repository.read()["ids"]


def texts(uri, unit):
    repository = Repository.open_or_create(uri)
    spec = CorpusSpec(unit, "text", {"unit": unit, "size": 3}, 0, "a")
    create_corpus(
        repository, spec, texts=["a cat", "dog"], sources=["a", "a"], source_starts=[0, 5]
    )
    return repository


def test_ids_that_agree_are_known_to(ids) -> None:
    assert require_agreement(ids, "ids", columns([0, 0, 0, 1, 1], [5, 6, 7, 8, 9])) == ""
    # The last tokens of both sequences were cut off, which their ids show.
    assert require_agreement(ids, "ids", columns([0, 0, 1], [5, 6, 8])) == ""


def test_ids_that_are_not_given_are_said_not_to_be_compared(ids) -> None:
    told = require_agreement(ids, "ids", columns([0, 0, 0, 1, 1], [-1] * 5))
    assert (
        told == "Token ids were not compared with those of ids: they are not known on both sides."
    )


@pytest.mark.parametrize(
    ("sequence", "token_id", "message"),
    [
        ([0, 0, 0, 1, 1], [5, 6, 7, 8, 8], "1 of 5 tokens .* sequence 1, position 1 the token id"),
        ([0, 0, 0], [5, 6, 7], "has 2 sequences, and the tensors 1, from 0 to 0"),
        (
            [0, 0, 0, 1, 1, 1],
            [5, 6, 7, 8, 9, 9],
            "token 5 .* position 2 of sequence 1, which has 2",
        ),
        ([0, 0, 1], [-1] * 3, "the tensors have 3 tokens and corpus 'ids' 5"),
    ],
)
def test_tokens_that_are_not_those_of_the_ids(ids, sequence, token_id, message) -> None:
    with pytest.raises(StoreError, match=message):
        require_agreement(ids, "ids", columns(sequence, token_id))


def test_texts_bound_their_sequences_and_characters(memory_uri) -> None:
    corpus = texts(memory_uri, "chars").read()["chars"]
    sequence = [0, 0, 1]
    told = require_agreement(corpus, "chars", columns(sequence, [1, 2, 3]))
    assert "was not checked beyond their number of sequences" in told
    with pytest.raises(StoreError, match="has 2 texts, and the tensors 3, from 0 to 2"):
        require_agreement(corpus, "chars", columns([0, 1, 2], [1, 2, 3]))
    ends = {"char_start": np.array([0, 1, 0]), "char_end": np.array([1, 5, 4])}
    with pytest.raises(StoreError, match=r"1 of 3 .* last character is 4, and the corpus has 3"):
        require_agreement(corpus, "chars", columns(sequence, [1, 2, 3], **ends))


def test_texts_that_each_tokenizer_cuts_bound_nothing(memory_uri) -> None:
    corpus = texts(memory_uri, "tokens").read()["tokens"]
    assert require_agreement(corpus, "tokens", columns([0, 1, 2], [1, 2, 3])) != ""


def test_tokens_of_a_model_that_is_there_are_compared_with_its_own(memory_uri, tmp_path) -> None:
    repository = texts(memory_uri, "chars")
    np.save(tmp_path / "a.npy", np.ones((2, 3, 4), np.float32))
    label = LabelledTensor(tmp_path / "a.npy", "", 0, "residual", None)
    tokens = {"sequence": np.array([0, 0, 1]), "token_id": np.array([1, 2, 3])}
    asked = {"corpus": "chars", "labels": [label], "tokens": tokens}
    assert import_tensors(repository, model="first", **asked).unchecked != ""
    assert import_tensors(repository, model="second", **asked).unchecked == ""
    assert set(open_store(repository.uri)["chars"].children) == {"first", "second"}
