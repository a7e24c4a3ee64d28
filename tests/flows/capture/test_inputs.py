from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import ByT5Tokenizer, CanineTokenizer, PreTrainedTokenizerFast

from flows.capture import cut_characters, from_ids, tokenize
from flows.capture.errors import InputError

CHARS = {"unit": "chars", "size": 512}
# CANINE's lists every character there is: two seconds.
byt5, canine = functools.cache(ByT5Tokenizer), functools.cache(CanineTokenizer)


def test_texts_are_cut_into_consecutive_pieces() -> None:
    cuts = cut_characters({"a": "0123456789", "b": "xyz"}, 4)
    # 10 characters give two pieces of 4 and a rest of 2, which is dropped; so is the whole of b.
    assert [(cut.text, cut.source, cut.start) for cut in cuts] == [
        ("0123", "a", 0),
        ("4567", "a", 4),
    ]


def test_a_subsample_is_seeded_and_in_corpus_order() -> None:
    text = "".join(chr(ord("a") + i % 26) for i in range(4000))
    some = cut_characters({"a": text}, 10, max_sequences=20, seed=3)
    starts = [cut.start for cut in some]
    assert len(starts) == 20
    assert starts == sorted(set(starts))
    assert some == cut_characters({"a": text}, 10, max_sequences=20, seed=3)
    assert some != cut_characters({"a": text}, 10, max_sequences=20, seed=4)


def test_texts_that_give_nothing_are_refused() -> None:
    with pytest.raises(InputError, match="b holds no text"):
        cut_characters({"a": "long enough", "b": " \n"}, 4)
    with pytest.raises(InputError, match=r"longest text has 11 characters, fewer than .* 12"):
        cut_characters({"a": "long enough"}, 12)
    with pytest.raises(InputError, match="expected a size of at least 1"):
        cut_characters({"a": "text"}, 0)


def test_each_cut_is_a_sequence_with_its_characters(
    tiny_tokenizer: PreTrainedTokenizerFast,
) -> None:
    texts = ["the cat sat", "the mat"]
    tokens = tokenize(texts, tiny_tokenizer, chunking=CHARS, special_tokens=True, max_length=64)
    assert tokens.n_sequences == 2
    assert tokens.truncated == 0
    for i, text in enumerate(texts):
        rows = tokens.sequence_rows(i)
        assert tokens.token_id[rows][[0, -1]].tolist() == [1, 2]
        assert tokens.special[rows].tolist() == [
            True,
            *[False] * (rows.stop - rows.start - 2),
            True,
        ]
        assert tokens.position[rows].tolist() == list(range(rows.stop - rows.start))
        assert set(tokens.document[rows]) == set(tokens.sequence[rows]) == {i}
        starts, ends = tokens.char_start[rows], tokens.char_end[rows]
        assert (starts[0], ends[0], starts[-1], ends[-1]) == (-1, -1, -1, -1)
        pieces = zip(starts[1:-1], ends[1:-1], strict=True)
        assert "".join(text[start:end] for start, end in pieces) == text
    bare = tokenize(texts, tiny_tokenizer, chunking=CHARS, special_tokens=False, max_length=64)
    assert bare.token_id.tolist() == tokens.token_id[~tokens.special].tolist()
    assert not bare.special.any()


def test_a_special_token_spelled_out_in_the_text_was_not_added(
    tiny_tokenizer: PreTrainedTokenizerFast,
) -> None:
    tokens = tokenize(["</s>"], tiny_tokenizer, chunking=CHARS, special_tokens=True)
    assert tokens.token_id.tolist() == [1, 2, 2]
    assert tokens.special.tolist() == [True, False, True]


def test_long_texts_are_cut_to_the_limit_and_counted(
    tiny_tokenizer: PreTrainedTokenizerFast,
) -> None:
    texts = ["cat", "q w e r t y u i o p", "c a t s " * 5]
    tokens = tokenize(texts, tiny_tokenizer, chunking=CHARS, special_tokens=True, max_length=8)
    assert tokens.truncated == 2
    assert tokens.lengths.max() == 8
    # The tokenizer's own end mark is kept.
    assert [tokens.token_id[tokens.sequence_rows(i)][-1] for i in range(3)] == [2, 2, 2]


def test_sequences_of_a_number_of_tokens(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    text = "the rat sat on the mat " * 10
    chunking = {"unit": "tokens", "size": 7}
    bare = tokenize([text], tiny_tokenizer, chunking=CHARS, special_tokens=False)
    tokens = tokenize([text, "cat"], tiny_tokenizer, chunking=chunking, special_tokens=True)
    assert set(tokens.lengths) == {7}
    assert set(tokens.document) == {0}
    # Each sequence has 5 tokens of the text between its two marks; the rest is dropped.
    assert tokens.n_sequences == len(bare) // 5
    inner = tokens.token_id[~tokens.special]
    assert inner.tolist() == bare.token_id[: len(inner)].tolist()
    plain = tokenize([text], tiny_tokenizer, chunking=chunking, special_tokens=False)
    assert plain.token_id.tolist() == bare.token_id[: len(bare) // 7 * 7].tolist()
    some = tokenize(
        [text], tiny_tokenizer, chunking=chunking, special_tokens=False, max_sequences=3, seed=1
    )
    assert some.n_sequences == 3
    assert (np.diff(some.char_start) > 0).all()


def test_sizes_in_tokens_that_cannot_be_are_refused(
    tiny_tokenizer: PreTrainedTokenizerFast,
) -> None:
    def cut(size: object, unit: str = "tokens") -> None:
        chunking = {"unit": unit, "size": size}
        tokenize(["a cat"], tiny_tokenizer, chunking=chunking, special_tokens=True, max_length=9)

    with pytest.raises(InputError, match="sequences of 10 tokens are longer than the 9"):
        cut(10)
    with pytest.raises(InputError, match="no text of the corpus has as many tokens"):
        cut(9)
    with pytest.raises(InputError, match=r"chunking .* is not known"):
        cut(9, "words")
    with pytest.raises(InputError, match="text 1 of the corpus is empty"):
        tokenize(["a", ""], tiny_tokenizer, chunking=CHARS, special_tokens=True)


def test_a_text_without_tokens_stays_an_empty_sequence(
    tiny_tokenizer: PreTrainedTokenizerFast,
) -> None:
    # This tokenizer has learned no token for "z".
    tokens = tokenize(["cat", "z", "rat"], tiny_tokenizer, chunking=CHARS, special_tokens=False)
    assert tokens.n_sequences == 3
    assert tokens.lengths[1] == 0
    assert set(tokens.document) == {0, 2}
    with pytest.raises(InputError, match="no token for any text"):
        tokenize(["z"], tiny_tokenizer, chunking=CHARS, special_tokens=False)


@pytest.mark.parametrize("make", [byt5, canine], ids=["byt5", "canine"])
def test_slow_tokenizers_give_the_same(
    make: Callable[[], ByT5Tokenizer | CanineTokenizer],
) -> None:
    tokenizer = make()
    texts = ["naïve", "a longer one"]
    tokens = tokenize(texts, tokenizer, chunking=CHARS, special_tokens=True, max_length=10)
    added = tokenizer.num_special_tokens_to_add()
    assert tokens.truncated == 1
    assert tokens.lengths.max() == 10
    assert tokens.special.sum() == 2 * added
    assert tokens.token_id[tokens.sequence_rows(0)].tolist() == tokenizer("naïve")["input_ids"]
    assert set(tokens.char_start[tokens.special]) == {-1}
    first = tokens.sequence_rows(0)
    content = ~tokens.special[first]
    assert set(tokens.char_start[first][content]) == {0, 1, 2, 3, 4}
    assert set(tokens.char_end[first][content]) == {1, 2, 3, 4, 5}


def test_ids_are_taken_as_they_are() -> None:
    tokens = from_ids([np.array([7, 8, 9]), np.array([4], dtype=np.uint16)], max_length=2)
    assert tokens.token_id.tolist() == [7, 8, 4]
    assert tokens.offsets.tolist() == [0, 2, 3]
    assert tokens.truncated == 1
    assert not tokens.special.any()
    assert tokens.char_start.tolist() == [-1, -1, -1]


@pytest.mark.parametrize(
    ("sequences", "message"),
    [
        ([], "no sequence of ids"),
        ([np.array([], dtype=int)], r"sequence 0 has shape \(0,\)"),
        ([np.array([1]), np.array([[1]])], r"sequence 1 has shape \(1, 1\)"),
        ([np.array([0.5])], "dtype float64: expected a non-empty row of integers"),
        ([np.array([3, -1])], "holds the id -1"),
    ],
)
def test_what_is_not_ids_is_refused(sequences: list[np.ndarray], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_ids(sequences)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=5), min_size=1, max_size=6))
def test_the_digest_tells_ids_and_their_sequences_apart(sequences: list[list[int]]) -> None:
    tokens = from_ids([np.array(ids) for ids in sequences])
    assert tokens.sha256() == from_ids([np.array(ids) for ids in sequences]).sha256()
    joined = from_ids([np.concatenate(sequences)])
    assert (tokens.sha256() == joined.sha256()) == (len(sequences) == 1)
    changed = from_ids([np.array(ids) + (i == 0) for i, ids in enumerate(sequences)])
    assert tokens.sha256() != changed.sha256()


def test_the_digest_is_what_it_was() -> None:
    expected = "44983f413ca8bdfa34c47c96736055689413cda12a6093caf822dfff1f7ae6e0"
    assert from_ids([np.array([1, 2]), np.array([3])]).sha256() == expected


def test_bytes_and_characters_know_where_they_stand() -> None:
    # One, two and three bytes of UTF-8, then one.
    text = "aé€b"
    found = tokenize([text], byt5(), chunking={"unit": "chars"}, special_tokens=True)
    assert found.char_start.tolist() == [0, 1, 1, 2, 2, 2, 3, -1]
    assert found.char_end.tolist() == [1, 2, 2, 3, 3, 3, 4, -1]
    assert found.special.tolist() == [False] * 7 + [True]
    found = tokenize([text], canine(), chunking={"unit": "chars"}, special_tokens=True)
    assert found.char_start.tolist() == [-1, 0, 1, 2, 3, -1]
