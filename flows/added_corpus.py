"""What adding a corpus gives: its size, its digest, and what was left out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from flows.capture.modality import AUDIO, IMAGE, TEXT

IDS: Final = "ids"

_NOUNS: Final = {
    TEXT: ("texts", "characters"),
    IDS: ("sequences", "ids"),
    IMAGE: ("images", "bytes"),
    AUDIO: ("sounds", "bytes"),
}


@dataclass(frozen=True)
class Skipped:
    """A file that was left out of a corpus.

    Attributes:
        name: The file.
        reason: What is wrong with it.
    """

    name: str
    reason: str


@dataclass(frozen=True)
class AddedCorpus:
    """What a corpus in the store consists of.

    Attributes:
        name: Its name.
        modality: ``text``, ``ids``, ``image`` or ``audio``.
        texts: Number of texts, each a sequence or a document to be cut by tokens; or of items.
        size: Characters of all texts, ids of all sequences, or bytes of all items.
        content_sha256: SHA-256 of the content.
        labels: Number of different labels.
        skipped: Files that could not be decoded, and are not in it.
        grown_from: Number of texts that it had before they became more, None if they did not.
    """

    name: str
    modality: str
    texts: int
    size: int
    content_sha256: str
    labels: int = 0
    skipped: tuple[Skipped, ...] = ()
    grown_from: int | None = None

    def __str__(self) -> str:
        noun, unit = _NOUNS[self.modality]
        labels = f" with {self.labels:,} labels" if self.labels else ""
        grown = "" if self.grown_from is None else f", grown from {self.grown_from:,}"
        return (
            f"Corpus {self.name}: {self.texts:,} {noun}{labels}{grown}, {self.size:,} {unit},"
            f" sha256 {self.content_sha256[:12]}"
        )


def digest(contents: Sequence[bytes]) -> str:
    """Return a SHA-256 that also depends on where one content ends and the next begins."""
    digest = hashlib.sha256(b"actlas corpus 1\n")
    for content in contents:
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()
