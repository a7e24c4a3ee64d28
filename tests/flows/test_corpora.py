from pathlib import Path

import numpy as np
import pytest

from flows.capture.errors import InputError
from flows.corpora import Chunking, add_id_file, add_ids, add_text_files, add_texts
from store.errors import IdentityConflictError
from store.repository import Repository


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def test_characters_are_cut_when_the_corpus_is_added(uri: str) -> None:
    added = add_texts(uri, "c", {"a": "abcdefgh", "b": "ijk"}, chunking=Chunking("chars", 3))
    # "abc" "def" from a, "gh" is dropped; "ijk" from b.
    assert (added.texts, added.size) == (3, 9)
    group = Repository.open(uri).read()["c"]
    assert list(group["text"][:]) == ["abc", "def", "ijk"]
    assert list(group["source"][:]) == ["a", "a", "b"]
    assert list(group["source_start"][:]) == [0, 3, 0]


def test_tokens_are_cut_when_a_model_is_run(uri: str) -> None:
    add_texts(uri, "c", {"a": "abcdefgh", "b": "ijk"}, chunking=Chunking("tokens", 3))
    assert list(Repository.open(uri).read()["c"]["text"][:]) == ["abcdefgh", "ijk"]


def test_adding_the_same_again_changes_nothing(uri: str) -> None:
    first = add_texts(uri, "c", {"a": "abcdef"}, chunking=Chunking("chars", 3))
    before = Repository.open(uri).snapshot_id()
    assert add_texts(uri, "c", {"a": "abcdef"}, chunking=Chunking("chars", 3)) == first
    assert Repository.open(uri).snapshot_id() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunking": Chunking("chars", 2)}, "size"),
        ({"special_tokens": False}, "special_tokens"),
        ({"max_sequences": 1}, "max_sequences"),
    ],
)
def test_another_corpus_of_the_same_name_is_refused(uri: str, options, message: str) -> None:
    add_texts(uri, "c", {"a": "abcdef"}, chunking=Chunking("chars", 3))
    wanted = {"chunking": Chunking("chars", 3)} | options
    with pytest.raises(IdentityConflictError, match=message):
        add_texts(uri, "c", {"a": "abcdef"}, **wanted)


def test_the_hash_knows_where_a_text_ends(uri: str) -> None:
    whole = Chunking("tokens", 2)
    one = add_texts(uri, "one", {"a": "ab", "b": "c"}, chunking=whole)
    other = add_texts(uri, "other", {"a": "a", "b": "bc"}, chunking=whole)
    assert one.content_sha256 != other.content_sha256


def test_files_of_one_name_keep_their_folders(uri: str, tmp_path: Path) -> None:
    files = [tmp_path / folder / "play.txt" for folder in ("one", "two")]
    for file in files:
        file.parent.mkdir()
        file.write_text("to be or not to be")
    add_text_files(uri, "c", files, chunking=Chunking("chars", 18))
    assert list(Repository.open(uri).read()["c"]["source"][:]) == [str(file) for file in files]


def test_text_that_is_not_utf8_is_refused(uri: str, tmp_path: Path) -> None:
    file = tmp_path / "latin.txt"
    file.write_bytes("café".encode("latin-1"))
    with pytest.raises(InputError, match=r"not UTF-8 text: byte 3 is 0xe9"):
        add_text_files(uri, "c", [file])


@pytest.mark.parametrize("chunking", [Chunking("chars", 3), Chunking("tokens", 3)])
def test_empty_text_is_refused_and_makes_no_store(uri: str, chunking: Chunking) -> None:
    with pytest.raises(InputError, match=r"a\.txt holds no text"):
        add_texts(uri, "c", {"a.txt": " \n"}, chunking=chunking)
    assert not Path(uri).exists()


def test_ids_come_back_with_their_sequences(uri: str, tmp_path: Path) -> None:
    file = tmp_path / "ids.npy"
    np.save(file, np.array([[5, 6], [7, 8]]))
    added = add_id_file(uri, "ids", file)
    assert (added.texts, added.size, added.modality) == (2, 4, "ids")
    group = Repository.open(uri).read()["ids"]
    assert list(group["token_id"][:]) == [5, 6, 7, 8]
    assert list(group["sequence"][:]) == [0, 0, 1, 1]


def test_ids_of_different_lengths_are_taken(uri: str) -> None:
    assert add_ids(uri, "ids", [np.array([1]), np.array([2, 3])]).size == 3


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([1.5, 2.5]), "float64 of shape"),
        (np.array([1, 2]), r"expected whole numbers \(sequence, position\)"),
        (np.array([[1, -2]]), "ids below 0"),
        (np.empty((0, 3), dtype=np.int64), "holds no ids"),
    ],
)
def test_what_is_no_matrix_of_ids_is_refused(uri: str, tmp_path: Path, array, message: str) -> None:
    file = tmp_path / "ids.npy"
    np.save(file, array)
    with pytest.raises(InputError, match=message):
        add_id_file(uri, "ids", file)


def test_a_file_that_is_no_array_is_refused(uri: str, tmp_path: Path) -> None:
    file = tmp_path / "ids.npy"
    file.write_text("1 2 3")
    with pytest.raises(InputError, match=r"is not an \.npy file"):
        add_id_file(uri, "ids", file)
