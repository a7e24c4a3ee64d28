"""Whether the tokens that came with tensors can be those of the corpus that they are put under."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import zarr

from store.arrays import member
from store.errors import StoreError
from store.schema import STACKS

Integers = npt.NDArray[np.int64]

UNKNOWN: Final = -1
"""Token ids and characters that nobody stated."""

_BY_TOKENS: Final = "tokens"
"""Unit of chunking for which each tokenizer makes sequences of its own."""


def require_agreement(corpus: zarr.Group, name: str, columns: Mapping[str, Integers]) -> str:
    """Refuse tokens that cannot be those of a corpus.

    Args:
        corpus: The group of the corpus.
        name: Its name.
        columns: Token coordinates, each (token,).

    Returns:
        What could not be looked at, as a sentence; nothing where everything was.

    Raises:
        StoreError: If sequences, ids or characters are not those of the corpus.
    """
    if "token_id" in corpus:
        return _with_ids(corpus, name, columns)
    if "text" in corpus:
        return _with_texts(corpus, name, columns)
    require_sequences(name, "items", member(corpus, "item_name").shape[0], columns)
    return f"That the rows are made from the items of {name} in their order was not checked."


def _with_ids(corpus: zarr.Group, name: str, columns: Mapping[str, Integers]) -> str:
    ids, sequence = (np.asarray(member(corpus, one)[:]) for one in ("token_id", "sequence"))
    lengths = np.bincount(sequence)
    own, position = columns["sequence"], columns["position"]
    require_sequences(name, "sequences", len(lengths), columns)
    # Position -1 is that of the mean of a sequence.
    beyond = np.flatnonzero((position < -1) | (position >= lengths[own]))
    if len(beyond):
        at = beyond[0]
        raise StoreError(
            f"token {at} of the tensors is at position {position[at]} of sequence {own[at]}, which"
            f" has {lengths[own[at]]} tokens in corpus {name!r}; {_REMEDY}"
        )
    at = np.searchsorted(sequence, own) + position
    held = np.where(position < 0, UNKNOWN, ids[at])
    given = columns["token_id"]
    known = (given != UNKNOWN) & (held != UNKNOWN)
    _refuse_first(name, known & (given != held), columns, given, held)
    if known.all():
        return ""
    if len(own) != len(ids):
        raise StoreError(
            f"the tensors have {len(own):,} tokens and corpus {name!r} {len(ids):,}: without a"
            f" column token_id in --tokens, expected all of them; {_REMEDY}"
        )
    return f"Token ids were not compared with those of {name}: they are not known on both sides."


def _with_texts(corpus: zarr.Group, name: str, columns: Mapping[str, Integers]) -> str:
    chunking = corpus.attrs["chunking"]
    assert isinstance(chunking, Mapping)
    if chunking["unit"] != _BY_TOKENS:
        require_sequences(name, "texts", member(corpus, "text").shape[0], columns)
        texts = np.asarray(member(corpus, "text")[:])
        size = np.array([len(str(text)) for text in texts])[columns["sequence"]]
        start, end = columns["char_start"], columns["char_end"]
        known = (start != UNKNOWN) & (end != UNKNOWN)
        _refuse_first(name, known & ((start > end) | (end > size)), columns, end, size)
    twin = next(_same_tokens(corpus, columns), None)
    if twin is not None:
        return ""
    return (
        f"That the tokens are those of the texts of {name} was not checked beyond their number of"
        " sequences: no model there has the same token ids."
    )


def _same_tokens(corpus: zarr.Group, columns: Mapping[str, Integers]) -> Iterator[str]:
    """Yield the models over a corpus that have just these tokens, where ids are known."""
    if (columns["token_id"] == UNKNOWN).any():
        return
    for model in corpus.group_keys():
        for path in (model, *(f"{model}/{stack}" for stack in STACKS)):
            if f"{path}/token_id" in corpus and all(
                np.array_equal(np.asarray(member(corpus, f"{path}/{one}")[:]), columns[one])
                for one in ("token_id", "sequence", "position")
            ):
                yield path


def require_sequences(name: str, what: str, count: int, columns: Mapping[str, Integers]) -> None:
    """Refuse tokens whose sequences are not just those of a corpus.

    Args:
        name: Name of the corpus.
        what: What its sequences are.
        count: How many it has.
        columns: Token coordinates, each (token,).

    Raises:
        StoreError: If the tokens are of other sequences, or of fewer.
    """
    found = np.unique(columns["sequence"])
    if not np.array_equal(found, np.arange(count)):
        told = f"{len(found):,}, from {found[0]} to {found[-1]}" if len(found) else "none"
        raise StoreError(f"corpus {name!r} has {count:,} {what}, and the tensors {told}; {_REMEDY}")


_REMEDY: Final = (
    "say with --tokens which sequence each token is in, or import under another corpus, which is"
    " then made of these tokens"
)


def _refuse_first(
    name: str,
    wrong: npt.NDArray[np.bool_],
    columns: Mapping[str, Integers],
    given: Integers,
    held: npt.NDArray[np.generic],
) -> None:
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        what = "token id" if given is columns["token_id"] else "last character"
        place = f"sequence {columns['sequence'][at]}, position {columns['position'][at]}"
        raise StoreError(
            f"{int(wrong.sum()):,} of {len(wrong):,} tokens are not those of corpus {name!r}: at"
            f" {place} the {what} is {given[at]}, and the corpus has {held[at]}; {_REMEDY}"
        )
