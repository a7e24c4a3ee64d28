"""The corpora of the studies, each added to the store when it is first needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from flows.added_corpus import AddedCorpus
from flows.corpora import Chunking, add_ids, add_texts
from flows.demo import materials
from flows.demo.stages import CHARACTERS, CORPUS, PLAY, SEQUENCES, TITLE
from flows.studies.media import add_pictures, add_sounds
from flows.studies.sources import BLOCK_VOCABULARY, Modality

SHORT_CORPUS: Final = f"{PLAY}-short"
"""Fewer pieces of the same play, for studies that keep every query and key."""

ID_CORPUS: Final = "distinct-ids"
"""Ids drawn from a vocabulary, each once: independent rows of an untrained embedding."""

CHARACTER_CORPUS: Final = f"{PLAY}-pieces"
"""Short pieces of the same play, which models that read bytes take whole."""

_SHORT_SEQUENCES: Final = 24
_PIECES: Final = 64
_CHARACTERS_OF_A_PIECE: Final = 240
_ID_SEQUENCES: Final = 16
_ID_LENGTH: Final = 64


def add_play(sequences: int, characters: int = CHARACTERS) -> Callable[[str, str], AddedCorpus]:
    """Return what adds pieces of the demo's play to a store, drawn with seed 0.

    Args:
        sequences: How many pieces.
        characters: Characters of a piece.
    """

    def add(store: str, name: str) -> AddedCorpus:
        texts = {TITLE: materials.plays()[PLAY]}
        chunking = Chunking("chars", characters)
        return add_texts(store, name, texts, chunking=chunking, max_sequences=sequences)

    return add


def _add_distinct_ids(store: str, name: str) -> AddedCorpus:
    # Id 0 is a padding id, whose embedding some models set to zero. None comes twice.
    drawn = 1 + np.random.default_rng(0).permutation(BLOCK_VOCABULARY - 1)
    rows = drawn[: _ID_SEQUENCES * _ID_LENGTH].reshape(_ID_SEQUENCES, _ID_LENGTH)
    return add_ids(store, name, list(rows))


USUAL: Final[dict[Modality, str]] = {
    "text": CORPUS,
    "ids": ID_CORPUS,
    "image": "made-pictures",
    "audio": "made-sounds",
}
"""The corpus of each kind of models, unless a study has its own."""

CORPORA: Final[dict[str, Callable[[str, str], AddedCorpus]]] = {
    CORPUS: add_play(SEQUENCES),
    SHORT_CORPUS: add_play(_SHORT_SEQUENCES),
    CHARACTER_CORPUS: add_play(_PIECES, _CHARACTERS_OF_A_PIECE),
    ID_CORPUS: _add_distinct_ids,
    "made-pictures": add_pictures,
    "made-sounds": add_sounds,
}
"""What adds each corpus to a store; one that is there is found."""
