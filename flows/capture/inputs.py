"""From texts or raw ids to the tokens of a corpus: what a model is shown, token by token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from flows.capture.errors import InputError
from flows.capture.tokens import Piece, Tokens, assemble

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CHARACTERS: Final = "chars"
TOKENS: Final = "tokens"
WHOLE: Final = "whole"

_TEXTS_A_CALL = 256
"""Texts given to a fast tokenizer at once: enough for its threads, few enough for memory."""


@dataclass(frozen=True)
class Cut:
    """A piece of a source text.

    Attributes:
        text: The characters themselves.
        source: Name of the text it was cut from.
        start: Index of its first character there.
    """

    text: str
    source: str
    start: int


def cut_characters(
    texts: Mapping[str, str], size: int, *, max_sequences: int | None = None, seed: int = 0
) -> list[Cut]:
    """Cut each text into consecutive pieces of equally many characters.

    The last piece of a text, which would be shorter, is dropped, as in the code of the papers.

    Args:
        texts: Texts by the name of their source.
        size: Number of characters of a piece.
        max_sequences: Number of pieces to keep, drawn at random; all when None.
        seed: Seed of that draw, which keeps the pieces in corpus order.

    Raises:
        InputError: If a text is empty, or none is as long as one piece.
    """
    if size < 1:
        raise InputError(f"pieces of {size} characters: expected a size of at least 1")
    for source, text in texts.items():
        if not text.strip():
            raise InputError(f"{source} holds no text: expected at least {size} characters")
    cuts = [
        Cut(text[start : start + size], source, start)
        for source, text in texts.items()
        for start in range(0, len(text) - size + 1, size)
    ]
    if not cuts:
        longest = max((len(text) for text in texts.values()), default=0)
        raise InputError(
            f"the longest text has {longest} characters, fewer than one piece of {size}: "
            "give more text or a smaller size"
        )
    return [cuts[i] for i in drawn(len(cuts), max_sequences, seed)]


def tokenize(
    texts: Sequence[str],
    tokenizer: PreTrainedTokenizerBase,
    *,
    chunking: Mapping[str, object],
    special_tokens: bool,
    max_length: int | None = None,
    max_sequences: int | None = None,
    seed: int = 0,
    earlier: Sequence[Draw] = (),
) -> Tokens:
    """Turn texts into the sequences that a model is shown.

    Args:
        texts: Texts of the corpus; their index becomes the document number.
        tokenizer: A tokenizer of `transformers`; only fast ones know character offsets.
        chunking: ``{"unit": "chars", ...}`` or ``{"unit": "whole"}``: each text is one sequence.
            ``{"unit": "tokens", "size": n}``: each text is cut into consecutive sequences of
            exactly n tokens, added ones included, and the shorter rest is dropped.
        special_tokens: Whether the tokenizer adds its special tokens to each sequence.
        max_length: The longest sequence that the model takes; longer ones are cut and counted.
        max_sequences: Number of sequences to keep, drawn at random; all when None.
        seed: Seed of that draw, which keeps the sequences in corpus order.
        earlier: Draws from what the corpus was before it grew, whose sequences come first.

    Raises:
        InputError: If a text is empty, no sequence results, or n is larger than max_length.
    """
    for index, text in enumerate(texts):
        if not text:
            raise InputError(f"text {index} of the corpus is empty")
    size = _piece_size(chunking, max_length)
    encoded = _encode(texts, tokenizer, size, special_tokens)
    if chunking["unit"] in (CHARACTERS, WHOLE):
        pieces = [replace(found[0], cut=len(found) > 1) for found in encoded]
    else:
        pieces = [piece for found in encoded for piece in found if len(piece.ids) == size]
    if not pieces:
        raise InputError(
            f"no text of the corpus has as many tokens as one sequence of {size}: "
            "give more text or a smaller size"
        )
    documents = np.array([piece.document for piece in pieces])
    draws = [*earlier, Draw(len(texts), max_sequences)]
    return assemble([pieces[i] for i in draw(documents, draws, seed)])


def from_ids(sequences: Sequence[NDArray[np.integer]], *, max_length: int | None = None) -> Tokens:
    """Take token ids as they are, for a model without a tokenizer.

    Args:
        sequences: One array (token,) of ids for each sequence.
        max_length: The longest sequence that the model takes; longer ones are cut and counted.

    Raises:
        InputError: If there is no sequence, or one is not a non-empty row of ids.
    """
    if len(sequences) == 0:
        raise InputError("no sequence of ids was given")
    for index, ids in enumerate(sequences):
        if ids.ndim != 1 or ids.size == 0 or not np.issubdtype(ids.dtype, np.integer):
            raise InputError(
                f"sequence {index} has shape {ids.shape} and dtype {ids.dtype}: "
                "expected a non-empty row of integers"
            )
        if ids.min() < 0:
            raise InputError(f"sequence {index} holds the id {ids.min()}: expected ids from 0")
    return assemble([_piece_of_ids(i, ids, max_length) for i, ids in enumerate(sequences)])


def _piece_of_ids(index: int, ids: NDArray[np.integer], max_length: int | None) -> Piece:
    kept = ids[:max_length].astype(np.int32)
    return Piece(
        ids=kept,
        special=np.zeros(len(kept), dtype=np.bool_),
        characters=np.full((len(kept), 2), -1, dtype=np.int32),
        document=index,
        cut=len(kept) < len(ids),
    )


def _piece_size(chunking: Mapping[str, object], max_length: int | None) -> int | None:
    if chunking.get("unit") in (CHARACTERS, WHOLE):
        return max_length
    size = chunking.get("size")
    if chunking.get("unit") != TOKENS or not isinstance(size, int) or size < 1:
        raise InputError(
            f"chunking {dict(chunking)!r} is not known: expected "
            f'{{"unit": "{CHARACTERS}"}} or {{"unit": "{TOKENS}", "size": n}} with n at least 1'
        )
    if max_length is not None and size > max_length:
        raise InputError(
            f"sequences of {size} tokens are longer than the {max_length} that the model takes: "
            f"choose a size of at most {max_length}"
        )
    return size


@dataclass(frozen=True)
class Draw:
    """How many sequences a corpus came to have at one time.

    Attributes:
        texts: Number of texts that it had.
        max_sequences: Number of sequences to have then, None for all.
    """

    texts: int
    max_sequences: int | None


def draw(documents: NDArray[np.integer], draws: Sequence[Draw], seed: int) -> list[int]:
    """Draw sequences, and more of them each time that the corpus grew.

    Args:
        documents: Number of the text that each sequence is of (sequence,).
        draws: What was drawn from, and how much of it, the first first.
        seed: Seed of the draws.

    Returns:
        Indices of sequences: those of one draw in corpus order, after those of the draws before.
    """
    chosen: list[int] = []
    for number, one in enumerate(draws):
        (left,) = np.nonzero(documents < one.texts)
        left = np.setdiff1d(left, chosen)
        wanted = None if one.max_sequences is None else one.max_sequences - len(chosen)
        if wanted is not None and wanted < 1 and number:
            continue
        own_seed = [seed, len(chosen)] if number else seed
        chosen += left[drawn(len(left), wanted, own_seed)].tolist()
    return chosen


def drawn(n: int, wanted: int | None, seed: int | list[int]) -> list[int]:
    """Return which of n sequences are kept, in ascending order; all when `wanted` is None.

    Raises:
        InputError: If none is wanted.
    """
    if wanted is None or wanted >= n:
        return list(range(n))
    if wanted < 1:
        raise InputError(f"a corpus of {wanted} sequences was asked for: expected at least 1")
    chosen = np.random.default_rng(seed).choice(n, size=wanted, replace=False)
    return [int(i) for i in np.sort(chosen)]


def _encode(
    texts: Sequence[str], tokenizer: PreTrainedTokenizerBase, size: int | None, special: bool
) -> Iterator[list[Piece]]:
    """Yield the consecutive pieces of at most `size` tokens of each text."""
    if not tokenizer.is_fast:
        for document, text in enumerate(texts):
            yield list(_encode_slowly(document, text, tokenizer, size, special))
        return
    for start in range(0, len(texts), _TEXTS_A_CALL):
        group = texts[start : start + _TEXTS_A_CALL]
        yield from _encode_group(start, group, tokenizer, size, special)


def _encode_group(
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


def _encode_slowly(
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
