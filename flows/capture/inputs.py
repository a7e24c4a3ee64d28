"""From texts or raw ids to the tokens of a corpus: what a model is shown, token by token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from flows.capture.drawing import Draw, draw, drawn
from flows.capture.encoding import encode
from flows.capture.errors import InputError
from flows.capture.tokens import Piece, Tokens, assemble

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CHARACTERS: Final = "chars"
TOKENS: Final = "tokens"
WHOLE: Final = "whole"


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
    encoded = encode(texts, tokenizer, size, special_tokens)
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
