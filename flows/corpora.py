"""Corpora: texts and token ids put into the store once, for every model to be run over."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from flows.capture.errors import InputError
from flows.capture.inputs import cut_characters, drawn
from flows.capture.modality import AUDIO, IMAGE, TEXT
from store.create import CorpusSpec, create_corpus, create_id_corpus
from store.repository import Repository

IDS: Final = "ids"

_NOUNS: Final = {
    TEXT: ("texts", "characters"),
    IDS: ("sequences", "ids"),
    IMAGE: ("images", "bytes"),
    AUDIO: ("sounds", "bytes"),
}


@dataclass(frozen=True)
class Chunking:
    """How texts become sequences.

    Attributes:
        unit: Cut by characters, once for all models, or by the tokens of each model, or whole.
        size: Characters or tokens of a sequence; without meaning for whole texts.
    """

    unit: Literal["chars", "tokens", "whole"] = "chars"
    size: int = 512

    def attributes(self) -> dict[str, str | int]:
        """Return what the store records of it."""
        facts: dict[str, str | int] = {"unit": self.unit}
        return facts if self.unit == "whole" else facts | {"size": self.size}


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
    """

    name: str
    modality: str
    texts: int
    size: int
    content_sha256: str
    labels: int = 0
    skipped: tuple[Skipped, ...] = ()

    def __str__(self) -> str:
        noun, unit = _NOUNS[self.modality]
        labels = f" with {self.labels:,} labels" if self.labels else ""
        return (
            f"Corpus {self.name}: {self.texts:,} {noun}{labels}, {self.size:,} {unit},"
            f" sha256 {self.content_sha256[:12]}"
        )


def add_text_files(
    store_uri: str,
    name: str,
    files: Sequence[Path],
    *,
    chunking: Chunking = Chunking(),
    max_sequences: int | None = None,
    seed: int = 0,
    special_tokens: bool = True,
) -> AddedCorpus:
    """Read UTF-8 text files and add them as a corpus; see :func:`add_texts`.

    Raises:
        InputError: If a file is not UTF-8, is empty, or none is as long as one sequence.
        OSError: If a file cannot be read.
    """
    short = len({file.name for file in files}) == len(files)
    texts = {file.name if short else str(file): _read(file) for file in files}
    return add_texts(
        store_uri,
        name,
        texts,
        chunking=chunking,
        max_sequences=max_sequences,
        seed=seed,
        special_tokens=special_tokens,
    )


def add_texts(
    store_uri: str,
    name: str,
    texts: Mapping[str, str],
    *,
    chunking: Chunking = Chunking(),
    max_sequences: int | None = None,
    seed: int = 0,
    special_tokens: bool = True,
    labels: Mapping[str, str] | None = None,
) -> AddedCorpus:
    """Add a corpus of texts; the store is made when there is none.

    Args:
        store_uri: The store.
        name: Name of the corpus.
        texts: Texts by the name of their source.
        chunking: By characters, texts are cut here; by tokens, when a model is run; whole ones
            are a sequence each.
        max_sequences: Number of sequences to draw at random, in corpus order; all when None.
        seed: Seed of that draw.
        special_tokens: Whether tokenizers add theirs.
        labels: Label of each text by the name of its source.

    Raises:
        InputError: If a text is empty, or none is as long as one sequence of characters.
        IdentityConflictError: If another corpus has the name.
    """
    if chunking.unit == "chars":
        cuts = cut_characters(texts, chunking.size, max_sequences=max_sequences, seed=seed)
        rows = [(cut.text, cut.source, cut.start) for cut in cuts]
    else:
        _refuse_empty(texts)
        rows = [(text, source, 0) for source, text in texts.items()]
        if chunking.unit == "whole" and max_sequences is not None:
            rows = [rows[i] for i in drawn(len(rows), max_sequences, seed)]
    pieces = [text for text, _, _ in rows]
    own_labels = None if labels is None else [labels[source] for _, source, _ in rows]
    spec = CorpusSpec(
        name=name,
        modality=TEXT,
        chunking=chunking.attributes(),
        seed=seed,
        content_sha256=digest([text.encode() for text in (*pieces, *(own_labels or ()))]),
        options={"max_sequences": max_sequences, "special_tokens": special_tokens},
    )
    create_corpus(
        Repository.open_or_create(store_uri),
        spec,
        texts=pieces,
        sources=[source for _, source, _ in rows],
        source_starts=[start for _, _, start in rows],
        labels=own_labels,
    )
    size = sum(len(text) for text in pieces)
    known = len(set(own_labels or ()))
    return AddedCorpus(name, TEXT, len(pieces), size, spec.content_sha256, labels=known)


def add_id_file(store_uri: str, name: str, file: Path) -> AddedCorpus:
    """Add token ids, (sequence, position) in an ``.npy`` file, for models without a tokenizer.

    Raises:
        InputError: If the file does not hold a matrix of ids.
        IdentityConflictError: If another corpus has the name.
    """
    try:
        ids = np.load(file, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(f"{file} is not an .npy file of numbers: {error}") from error
    if not isinstance(ids, np.ndarray) or ids.ndim != 2 or not np.issubdtype(ids.dtype, np.integer):
        raise InputError(
            f"{file} holds {getattr(ids, 'dtype', type(ids).__name__)} of shape"
            f" {getattr(ids, 'shape', '?')}: expected whole numbers (sequence, position)"
        )
    if ids.size == 0 or ids.min() < 0:
        raise InputError(f"{file} holds no ids, or ids below 0: expected ids from 0")
    return add_ids(store_uri, name, list(ids))


def add_ids(store_uri: str, name: str, sequences: Sequence[NDArray[np.integer]]) -> AddedCorpus:
    """Add sequences of token ids; the store is made when there is none.

    Args:
        store_uri: The store.
        name: Name of the corpus.
        sequences: Ids of each sequence, each (position,).

    Raises:
        IdentityConflictError: If another corpus has the name.
    """
    rows = [np.ascontiguousarray(ids, dtype="<i4") for ids in sequences]
    spec = CorpusSpec(
        name=name,
        modality=IDS,
        chunking={"unit": "as given"},
        seed=0,
        content_sha256=digest([ids.tobytes() for ids in rows]),
    )
    create_id_corpus(Repository.open_or_create(store_uri), spec, sequences=rows)
    return AddedCorpus(name, IDS, len(rows), sum(map(len, rows)), spec.content_sha256)


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{file} is not UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}."
            " Convert it first, for instance with iconv"
        ) from error


def _refuse_empty(texts: Mapping[str, str]) -> None:
    for source, text in texts.items():
        if not text.strip():
            raise InputError(f"{source} holds no text: expected at least one sequence")


def digest(contents: Sequence[bytes]) -> str:
    """Return a SHA-256 that also depends on where one content ends and the next begins."""
    digest = hashlib.sha256(b"actlas corpus 1\n")
    for content in contents:
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()
