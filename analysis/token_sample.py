"""Some tokens of a model with the texts they stand for, to look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import xarray as xr

from analysis.inputs import CAUSAL
from analysis.populations import CONTENT, TokenTable
from store.repository import Repository
from store.slab import token_table
from store.texts import corpus_texts, item_titles

SAMPLE_TOKENS: Final = 2000
MOST_CHUNKS: Final = 16
"""Chunks that a sample is spread over, so that looking at a layer reads no more, however big."""

_AROUND: Final = 28
_CHUNK_ROWS: Final = "chunk_rows"


@dataclass(frozen=True)
class TokenSample:
    """Tokens drawn from one model.

    Attributes:
        path: Group of the model.
        snapshot: Snapshot that they were read from.
        tokens: Their indices along the token axis (row,), ascending.
        words: What each stands for in the text, or where it lies in its image or sound; its id
            where there is neither.
        contexts: Each within the characters around it, or what its image or sound is called.
        sequence: Number of the sequence of each (row,).
        position: Position of each within its sequence (row,).
    """

    path: str
    snapshot: str
    tokens: npt.NDArray[np.int64]
    words: tuple[str, ...]
    contexts: tuple[str, ...]
    sequence: npt.NDArray[np.int64]
    position: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.tokens)


def sample_tokens(
    repository: Repository,
    path: str,
    *,
    size: int = SAMPLE_TOKENS,
    seed: int = 0,
    content: bool = True,
    snapshot: str | None = None,
) -> TokenSample:
    """Draw tokens of a model from at most ``MOST_CHUNKS`` of its chunks, and read their texts.

    Args:
        repository: The store.
        path: ``corpus/model`` or ``corpus/model/stack``.
        size: Number of tokens, fewer where there are fewer.
        seed: Seed of the draw.
        content: Whether to leave out special tokens and first tokens of causal models.
        snapshot: Snapshot to read, the newest by default.

    Raises:
        UnknownNameError: If there is no such model.
    """
    pinned = snapshot or repository.snapshot_id()
    table = token_table(repository.uri, path, pinned)
    chosen = _draw(table, size, np.random.default_rng(seed), content=content)
    columns = {name: table[name].values[chosen].astype(np.int64) for name in _COLUMNS}
    source = repository.uri, path.split("/")[0], pinned
    titles = item_titles(*source)
    if titles:
        told = [
            (place, titles[number])
            for place, number in zip(_places(table, chosen), columns["document"], strict=True)
        ]
    else:
        texts = corpus_texts(*source, columns["document"])
        told = [
            _told(texts.get(int(document), ""), int(start), int(end), int(number))
            for document, start, end, number in zip(*(columns[name] for name in _TOLD), strict=True)
        ]
    words, contexts = (tuple(part) for part in zip(*told, strict=True)) if told else ((), ())
    return TokenSample(
        path, pinned, chosen, words, contexts, columns["sequence"], columns["position"]
    )


_TOLD: Final = ("document", "char_start", "char_end", "token_id")
_PLACES: Final = (
    ("row", "column", "row {}, column {}"),
    ("sample_start", "sample_end", "samples {:,} to {:,}"),
)
_COLUMNS: Final = (*_TOLD, "sequence", "position")


def _draw(
    table: xr.Dataset, size: int, rng: np.random.Generator, *, content: bool
) -> npt.NDArray[np.int64]:
    special, position = table["special"].values, table["position"].values
    sequence = table["sequence"].values
    causal = bool(table.attrs.get(CAUSAL, False))
    codes = TokenTable.from_coordinates(
        special=special, position=position, sequence=sequence, causal=causal
    ).codes
    wanted = codes == CONTENT if content else np.ones(len(codes), bool)
    chunks = np.arange(len(codes)) // int(table.attrs[_CHUNK_ROWS])
    held = np.unique(chunks[wanted])
    if len(held) > MOST_CHUNKS:
        wanted &= np.isin(chunks, rng.choice(held, MOST_CHUNKS, replace=False))
    among = np.flatnonzero(wanted)
    return np.sort(rng.choice(among, min(size, len(among)), replace=False))


def _places(table: xr.Dataset, chosen: npt.NDArray[np.int64]) -> list[str]:
    """Return where tokens lie in their image or sound."""
    for first, second, told in _PLACES:
        if first in table and second in table:
            pairs = zip(table[first].values[chosen], table[second].values[chosen], strict=True)
            return [told.format(int(one), int(other)) for one, other in pairs]
    return [f"id {number}" for number in table["token_id"].values[chosen]]


def _told(text: str, start: int, end: int, number: int) -> tuple[str, str]:
    """Return what a token stands for, and the same within what is around it."""
    if start < 0 or end <= start or not text:
        return f"id {number}", ""
    word = _one_line(text[start:end])
    before, after = text[max(0, start - _AROUND) : start], text[end : end + _AROUND]
    return word, f"{_one_line(before)}⟦{word}⟧{_one_line(after)}"


def _one_line(text: str) -> str:
    return text.replace("\n", "⏎").replace("\t", "⇥")
