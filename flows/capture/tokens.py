"""The tokens of a corpus: what a model is shown, and where each row of activations belongs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flows.capture.errors import InputError
from flows.capture.masks import Masks


@dataclass(frozen=True)
class Tokens:
    """Every token of a corpus, sequence after sequence; all arrays have the dimension token.

    Attributes:
        token_id: Id in the vocabulary.
        sequence: Number of the sequence, ascending.
        position: Position within the sequence, from 0.
        document: Number of the text or id array that the token was cut from.
        char_start: First character within that text, -1 when unknown.
        char_end: One past its last character there, -1 when unknown.
        special: Whether the tokenizer added it (BOS, CLS, SEP ...).
        offsets: (sequence + 1,) first token of each sequence, then the number of tokens.
        truncated: Number of sequences that were cut to the longest the model takes.
        rate: Tokens that one row of the model spans, after a first row for the first token alone.
        kept: (row,) numbers of the rows that are kept, ascending; None for all.
        pooled: Whether one row is kept of each sequence that has tokens, their mean.
        masks: Tokens that are hidden for the loss of a model of masked tokens, None elsewhere.
    """

    token_id: NDArray[np.int32]
    sequence: NDArray[np.int32]
    position: NDArray[np.int32]
    document: NDArray[np.int32]
    char_start: NDArray[np.int32]
    char_end: NDArray[np.int32]
    special: NDArray[np.bool_]
    offsets: NDArray[np.int64]
    truncated: int = 0
    rate: int = 1
    kept: NDArray[np.int64] | None = None
    pooled: bool = False
    masks: Masks | None = None

    def __len__(self) -> int:
        return len(self.token_id)

    @property
    def n_sequences(self) -> int:
        """Number of sequences, those without any token included."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each sequence, (sequence,)."""
        return np.diff(self.offsets)

    @property
    def longest(self) -> int:
        """Number of positions of the longest sequence."""
        return int(self.lengths.max())

    @property
    def n_rows(self) -> int:
        """Number of rows that are kept of what a model computes."""
        return int(self.row_offsets[-1])

    @cached_property
    def place_offsets(self) -> NDArray[np.int64]:
        """First row that the model gives for each sequence, then their number (sequence + 1,)."""
        if self.rate == 1:
            return self.offsets
        return np.concatenate([[0], np.cumsum(self.lengths // self.rate)])

    @cached_property
    def row_offsets(self) -> NDArray[np.int64]:
        """First row of each sequence, then the number of rows (sequence + 1,)."""
        if self.pooled:
            return np.concatenate([[0], np.cumsum(np.diff(self.place_offsets) > 0)])
        if self.kept is None:
            return self.place_offsets
        return np.searchsorted(self.kept, self.place_offsets)

    def sequence_tokens(self, sequence: int) -> slice:
        """Return the range of tokens of one sequence."""
        return slice(int(self.offsets[sequence]), int(self.offsets[sequence + 1]))

    def sequence_rows(self, sequence: int) -> slice:
        """Return the range of rows of one sequence."""
        return slice(int(self.row_offsets[sequence]), int(self.row_offsets[sequence + 1]))

    def select(self, sequences: Sequence[int]) -> Tokens:
        """Return some sequences alone, numbered anew."""
        chosen = assemble(
            [
                Piece(
                    ids=self.token_id[rows],
                    special=self.special[rows],
                    characters=np.stack([self.char_start[rows], self.char_end[rows]], axis=1),
                    document=int(self.document[rows.start]) if rows.stop > rows.start else -1,
                )
                for rows in map(self.sequence_tokens, sequences)
            ]
        )
        chosen = replace(chosen, rate=self.rate)
        kept = self.kept_among(sequences, chosen.place_offsets)
        masks = self.masks and self.masks.select([self.sequence_tokens(s) for s in sequences])
        return replace(chosen, kept=kept, pooled=self.pooled, masks=masks)

    def kept_among(
        self, sequences: Sequence[int], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64] | None:
        """Return the kept rows of some sequences once those begin at other offsets."""
        if self.kept is None:
            return None
        parts = [
            self.kept[self.sequence_rows(old)] - self.place_offsets[old] + offsets[new]
            for new, old in enumerate(sequences)
        ]
        return np.concatenate(parts)

    def shifted(self, start: int) -> Tokens:
        """Return what a decoder is shown after its start token: each sequence one token later.

        The last token of each sequence falls away, and the start token counts as an added one.
        """
        first = self.position == 0
        return replace(
            self,
            token_id=np.where(first, start, np.roll(self.token_id, 1)).astype(np.int32),
            char_start=np.where(first, -1, np.roll(self.char_start, 1)).astype(np.int32),
            char_end=np.where(first, -1, np.roll(self.char_end, 1)).astype(np.int32),
            special=first | np.roll(self.special, 1),
        )

    def coordinates(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays along the rows by name, those of the token of each row.

        A mean has the position and the id -1, and the characters of the whole sequence.
        """
        names = (
            "sequence",
            "position",
            "token_id",
            "document",
            "char_start",
            "char_end",
            "special",
        )
        columns: dict[str, NDArray[np.generic]] = {name: getattr(self, name) for name in names}
        if self.rate > 1:
            columns = self._spans(columns)
        if self.pooled:
            return self._pooled(columns)
        if self.kept is None:
            return columns
        return {name: column[self.kept] for name, column in columns.items()}

    def _spans(self, columns: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
        """Return the columns of rows that span several tokens: what they have of the first one."""
        counts = np.diff(self.place_offsets)
        number = np.arange(self.place_offsets[-1]) - np.repeat(self.place_offsets[:-1], counts)
        start = np.repeat(self.offsets[:-1], counts)
        first = start + np.maximum(number - 1, 0) * self.rate
        last = np.where(number == 0, first, first + self.rate - 1)
        spans = first[:, None] + np.minimum(np.arange(self.rate), (last - first)[:, None])
        starts = np.where(self.char_start < 0, np.iinfo(np.int32).max, self.char_start)[spans]
        known = starts.min(axis=1, initial=np.iinfo(np.int32).max) < np.iinfo(np.int32).max
        return {
            **{name: column[first] for name, column in columns.items()},
            "position": number.astype(np.int32),
            "char_start": np.where(known, starts.min(axis=1), -1).astype(np.int32),
            "char_end": self.char_end[spans].max(axis=1),
            "special": self.special[spans].all(axis=1),
        }

    def _pooled(self, columns: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
        first = self.place_offsets[:-1][np.diff(self.place_offsets) > 0]
        starts, ends = columns["char_start"].astype(np.int32), columns["char_end"]
        known = np.where(starts < 0, np.iinfo(np.int32).max, starts)
        start = np.minimum.reduceat(known, first)
        unknown = start == np.iinfo(np.int32).max
        rows = {name: columns[name][first] for name in ("sequence", "document")}
        none = np.full(len(first), -1, dtype=np.int32)
        return rows | {
            "position": none,
            "token_id": none,
            "char_start": np.where(unknown, -1, start).astype(np.int32),
            "char_end": np.maximum.reduceat(ends.astype(np.int32), first),
            "special": np.zeros(len(first), dtype=np.bool_),
        }

    def sha256(self) -> str:
        """Return the SHA-256 of the token ids and of where their sequences start."""
        digest = hashlib.sha256(b"actlas tokens 1\n")
        digest.update(self.offsets.astype("<i8").tobytes())
        digest.update(self.token_id.astype("<i4").tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Piece:
    """One sequence, before it is laid beside the others.

    Attributes:
        ids: (token,) ids in the vocabulary.
        special: (token,) whether the tokenizer added the token.
        characters: (token, 2) first and one past the last character, -1 when unknown.
        document: Number of the text it was cut from.
        cut: Whether it goes on beyond the longest sequence the model takes.
    """

    ids: NDArray[np.int32]
    special: NDArray[np.bool_]
    characters: NDArray[np.int32]
    document: int
    cut: bool = False


def assemble(pieces: Sequence[Piece]) -> Tokens:
    """Lay sequences one after the other.

    Raises:
        InputError: If they hold no token at all.
    """
    lengths = np.array([len(piece.ids) for piece in pieces], dtype=np.int64)
    if lengths.sum() == 0:
        raise InputError("the tokenizer gave no token for any text of the corpus")
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    special = np.concatenate([piece.special for piece in pieces])
    characters = np.concatenate([piece.characters for piece in pieces])
    characters[special] = -1
    documents = np.array([piece.document for piece in pieces], dtype=np.int32)
    return Tokens(
        token_id=np.concatenate([piece.ids for piece in pieces]),
        sequence=np.repeat(np.arange(len(pieces), dtype=np.int32), lengths),
        position=(np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)).astype(np.int32),
        document=np.repeat(documents, lengths),
        char_start=np.ascontiguousarray(characters[:, 0]),
        char_end=np.ascontiguousarray(characters[:, 1]),
        special=special,
        offsets=offsets,
        truncated=sum(piece.cut for piece in pieces),
    )
