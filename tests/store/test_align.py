import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from store import open_store
from store.align import align
from store.errors import StoreError


def tokens(*spans, attrs=None):
    """Token coordinates from (document, start, end)."""
    document, start, end = np.array(spans, dtype=np.int32).reshape(-1, 3).T
    columns = {"document": document, "char_start": start, "char_end": end}
    return xr.Dataset({name: ("token", one) for name, one in columns.items()}, attrs=attrs)


# "to beware" as   [BOS] | to | _be | ware   and as   to | b | e | war | e | [EOS].
BYTE_PAIRS = tokens((0, -1, -1), (0, 0, 2), (0, 2, 5), (0, 5, 9))
WORD_PIECES = tokens((0, 0, 2), (0, 3, 4), (0, 4, 5), (0, 5, 8), (0, 8, 9), (0, -1, -1))


def test_spans_are_the_shortest_that_both_cut():
    found = align(BYTE_PAIRS, WORD_PIECES)
    assert found.n_spans == 3
    assert found.char_end.tolist() == [2, 5, 9]
    assert found.document.tolist() == [0, 0, 0]
    assert found.span_of_a.tolist() == [-1, 0, 1, 2]
    assert found.span_of_b.tolist() == [0, 1, 1, 2, 2, -1]


def test_the_last_or_the_first_token_stands_for_a_span():
    found = align(BYTE_PAIRS, WORD_PIECES)
    last_a, last_b = found.rows()
    assert (last_a.tolist(), last_b.tolist()) == ([1, 2, 3], [0, 2, 4])
    first_a, first_b = found.rows("first")
    assert (first_a.tolist(), first_b.tolist()) == ([1, 2, 3], [0, 1, 3])


def test_the_mean_over_a_span():
    rows = np.arange(12.0).reshape(6, 2)
    mean_a, mean_b = align(BYTE_PAIRS, WORD_PIECES).mean(np.eye(4, dtype=np.float32), rows)
    np.testing.assert_array_equal(mean_a, np.eye(4)[1:])
    # Rows 1 and 2, [2, 3] and [4, 5]; rows 3 and 4, [6, 7] and [8, 9].
    np.testing.assert_array_equal(mean_b, [[0, 1], [3, 4], [7, 8]])
    with pytest.raises(StoreError, match="one row for each of 6 tokens, got 5"):
        align(BYTE_PAIRS, WORD_PIECES).mean(np.eye(4), rows[:5])


def test_documents_are_kept_apart_and_what_one_did_not_see_is_left_out():
    a = tokens((0, 0, 3), (0, 3, 6), (1, 0, 4), (2, 0, 4))
    b = tokens((0, 0, 3), (1, 0, 2), (1, 2, 4))
    found = align(a, b)
    assert found.document.tolist() == [0, 1]
    # The end of a's second token (6) is past all that b saw of document 0.
    assert found.span_of_a.tolist() == [0, -1, 1, -1]
    assert found.span_of_b.tolist() == [0, 1, 1]


def test_tokens_that_share_a_character_share_a_span():
    # Two byte tokens of one character have the same offsets.
    a = tokens((0, 0, 1), (0, 0, 1), (0, 1, 2))
    found = align(a, tokens((0, 0, 1), (0, 1, 2)))
    assert found.span_of_a.tolist() == [0, 0, 1]
    assert found.rows()[0].tolist() == [1, 2]


@st.composite
def cuts(draw):
    """Two ways to cut the same three texts of 12 characters."""
    ends = st.sets(st.integers(1, 11), max_size=11)
    return [
        [(document, start, end) for document in range(3) for start, end in _pieces(draw(ends))]
        for _ in range(2)
    ]


def _pieces(inner):
    ends = [*sorted(inner), 12]
    return list(zip([0, *ends], ends, strict=False))


@given(cuts())
def test_spans_cut_both_models_into_the_same_text(pair):
    a, b = (tokens(*spans) for spans in pair)
    found = align(a, b)
    for table, spans in ((a, found.span_of_a), (b, found.span_of_b)):
        assert set(spans) == set(range(found.n_spans))
        for number in range(found.n_spans):
            ends = table["char_end"].values[spans == number]
            assert ends.max() == found.char_end[number]
    shared = {(d, e) for d, _, e in pair[0]} & {(d, e) for d, _, e in pair[1]}
    assert set(zip(found.document, found.char_end, strict=True)) == shared
    same = align(a, a)
    np.testing.assert_array_equal(same.rows()[0], np.arange(a.sizes["token"]))


def test_different_corpora_and_unknown_characters_are_refused():
    with pytest.raises(StoreError, match="different corpora cannot be aligned: content 'x'"):
        align(tokens((0, 0, 1), attrs={"corpus_sha256": "x"}), tokens((0, 0, 1)))
    with pytest.raises(StoreError, match="is not known, as for corpora of token ids"):
        align(tokens((0, -1, -1)), tokens((0, 0, 1)))
    with pytest.raises(StoreError, match="cannot be aligned without char_end"):
        align(tokens((0, 0, 1)).drop_vars("char_end"), tokens((0, 0, 1)))


def test_nodes_of_a_store_align(toy, memory_uri):
    offsets = toy.tokens() | {
        "char_start": np.arange(50) % 25,
        "char_end": np.arange(50) % 25 + 1,
        "document": np.arange(50) // 25,
    }
    toy.prepare(memory_uri, tokens=offsets)
    node = open_store(memory_uri)[toy.PATH]
    assert align(node, node.to_dataset()).n_spans == 50
