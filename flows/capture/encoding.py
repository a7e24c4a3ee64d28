"""From texts to pieces of token ids with their characters, by a fast tokenizer or a slow one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from flows.capture.errors import InputError
from flows.capture.tokens import Piece

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_TEXTS_A_CALL: Final = 256
"""Texts given to a fast tokenizer at once: enough for its threads, few enough for memory."""


def encode(
    texts: Sequence[str], tokenizer: PreTrainedTokenizerBase, size: int | None, special: bool
) -> Iterator[list[Piece]]:
    """Yield the consecutive pieces of at most `size` tokens of each text."""
    if not tokenizer.is_fast:
        for document, text in enumerate(texts):
            yield list(_slowly(document, text, tokenizer, size, special))
        return
    for start in range(0, len(texts), _TEXTS_A_CALL):
        group = texts[start : start + _TEXTS_A_CALL]
        yield from _group(start, group, tokenizer, size, special)


def _group(
    first: int,
    group: Sequence[str],
    tokenizer: PreTrainedTokenizerBase,
    size: int | None,
    special: bool,
) -> list[list[Piece]]:
    found: list[list[Piece]] = [[] for _ in group]
    encoded = tokenizer(
        list(group),
        add_special_tokens=special,
        truncation=size is not None,
        max_length=size,
        return_overflowing_tokens=size is not None,
        return_offsets_mapping=True,
        return_special_tokens_mask=True,
        verbose=False,
    )
    owners = encoded.get("overflow_to_sample_mapping", range(len(group)))
    for row, owner in enumerate(owners):
        piece = Piece(
            ids=np.asarray(encoded["input_ids"][row], dtype=np.int32),
            special=np.asarray(encoded["special_tokens_mask"][row], dtype=np.bool_),
            characters=np.asarray(encoded["offset_mapping"][row], dtype=np.int32).reshape(-1, 2),
            document=first + owner,
        )
        found[owner].append(piece)
    return found


def _slowly(
    document: int, text: str, tokenizer: PreTrainedTokenizerBase, size: int | None, special: bool
) -> Iterator[Piece]:
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    spans = _spans(text, tokenizer.convert_ids_to_tokens(ids))
    added = tokenizer.num_special_tokens_to_add() if special else 0
    room = max(len(ids), 1) if size is None else size - added
    if room < 1:
        raise InputError(f"sequences of {size} tokens have no room beside {added} special tokens")
    for start in range(0, max(len(ids), 1), room):
        whole = tokenizer.prepare_for_model(
            ids[start : start + room],
            add_special_tokens=special,
            return_special_tokens_mask=True,
            verbose=False,
        )
        special_mask = np.asarray(whole["special_tokens_mask"], dtype=np.bool_)
        characters = np.full((len(special_mask), 2), -1, dtype=np.int32)
        own = spans[start : start + room]
        if np.count_nonzero(~special_mask) == len(own):
            characters[~special_mask] = own
        yield Piece(
            ids=np.asarray(whole["input_ids"], dtype=np.int32),
            special=special_mask,
            characters=characters,
            document=document,
        )


def _spans(text: str, tokens: Sequence[str]) -> NDArray[np.int32]:
    """Return the first character of each token and one past its last, -1 where they do not tell.

    They do where tokens are pieces of the text, such as its characters, and where each stands for
    one byte of it in UTF-8, as the character of that number: the bytes of a character share it.
    """
    if "".join(tokens) == text:
        ends = np.cumsum([len(token) for token in tokens], dtype=np.int32)
        return np.stack([np.append(0, ends[:-1]), ends], axis=1).astype(np.int32)[: len(tokens)]
    encoded = np.frombuffer(text.encode(), dtype=np.uint8)
    if [len(token) == 1 and ord(token) for token in tokens] == encoded.tolist():
        starts = np.cumsum(encoded & 0xC0 != 0x80) - 1
        return np.stack([starts, starts + 1], axis=1).astype(np.int32)
    return np.full((len(tokens), 2), -1, dtype=np.int32)
