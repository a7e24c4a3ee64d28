"""Corpora: texts and token ids put into the store once, for every model to be run over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypedDict

import numpy as np
import zarr
from numpy.typing import NDArray

from flows.added_corpus import IDS, AddedCorpus, digest
from flows.capture.drawing import drawn
from flows.capture.errors import InputError
from flows.capture.inputs import Cut, cut_characters
from flows.capture.modality import TEXT
from flows.growth import (
    grown_spec,
    held_cuts,
    held_sequences,
    holds_all,
    is_last_growth,
    texts_to_add,
)
from store.corpora import (
    CorpusSpec,
    create_corpus,
    create_id_corpus,
    grow_corpus,
    id_columns,
    text_columns,
)
from store.repository import Repository
from store.schema import node_name


class _TextColumns(TypedDict):
    texts: list[str]
    sources: list[str]
    source_starts: list[int]


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
    """Add a corpus of texts, or more texts to it; the store is made when there is none.

    A corpus of that name that was cut in the same way from some of the texts keeps them, in their
    order, and the others come after them.

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
    spec = CorpusSpec(
        name=name,
        modality=TEXT,
        chunking=chunking.attributes(),
        seed=seed,
        content_sha256="",
        options={"max_sequences": max_sequences, "special_tokens": special_tokens},
    )
    chosen = _cuts(texts, chunking, max_sequences, seed)
    repository = Repository.open_or_create(store_uri)
    group = repository.read().get(node_name(name))
    if labels is None and isinstance(group, zarr.Group) and _may_grow(group):
        grown = _grown(repository, group, spec, _cuts(texts, chunking, None, seed))
        if grown is not None:
            return grown
    own_labels = None if labels is None else [labels[cut.source] for cut in chosen]
    spec = replace(spec, content_sha256=_text_digest(chosen, own_labels or ()))
    create_corpus(repository, spec, **_columns(chosen), labels=own_labels)
    return replace(_added(spec, chosen), labels=len(set(own_labels or ())))


def _may_grow(group: zarr.Group) -> bool:
    return "text" in group and "text_label" not in group


def _cuts(
    texts: Mapping[str, str], chunking: Chunking, max_sequences: int | None, seed: int
) -> list[Cut]:
    if chunking.unit == "chars":
        return cut_characters(texts, chunking.size, max_sequences=max_sequences, seed=seed)
    _refuse_empty(texts)
    whole = [Cut(text, source, 0) for source, text in texts.items()]
    if chunking.unit == "whole":
        return [whole[i] for i in drawn(len(whole), max_sequences, seed)]
    return whole


def _grown(
    repository: Repository, group: zarr.Group, spec: CorpusSpec, offered: Sequence[Cut]
) -> AddedCorpus | None:
    """Add the texts that a corpus lacks, return None where it is not one that grows."""
    held = held_cuts(group)
    former = str(group.attrs["content_sha256"])
    offered_sha256 = _text_digest(offered)
    if is_last_growth(group, spec, offered_sha256) or holds_all(group, spec, offered):
        return _added(replace(spec, content_sha256=former), held)
    rows = texts_to_add(group, spec, offered)
    if rows is None:
        return None
    whole = [*held, *rows]
    spec = replace(spec, content_sha256=_text_digest(whole))
    spec = grown_spec(group, spec, (len(held), len(whole)), offered_sha256)
    grow_corpus(repository, spec, text_columns(**_columns(rows)), former_sha256=former)
    return replace(_added(spec, whole), grown_from=len(held))


def _columns(cuts: Sequence[Cut]) -> _TextColumns:
    return {
        "texts": [cut.text for cut in cuts],
        "sources": [cut.source for cut in cuts],
        "source_starts": [cut.start for cut in cuts],
    }


def _added(spec: CorpusSpec, cuts: Sequence[Cut]) -> AddedCorpus:
    size = sum(len(cut.text) for cut in cuts)
    return AddedCorpus(spec.name, TEXT, len(cuts), size, spec.content_sha256)


def _text_digest(cuts: Sequence[Cut], labels: Sequence[str] = ()) -> str:
    return digest([text.encode() for text in (*(cut.text for cut in cuts), *labels)])


def add_id_file(store_uri: str, name: str, file: Path) -> AddedCorpus:
    """Add token ids, (sequence, position) in an ``.npy`` file, for models without a tokenizer.

    Raises:
        InputError: If the file does not hold a matrix of ids.
        IdentityConflictError: If another corpus has the name.
    """
    try:
        ids = np.load(file, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(
            f"{file} is not an .npy file of numbers: expected one that numpy.save made of whole"
            " numbers (sequence, position)"
        ) from error
    if not isinstance(ids, np.ndarray) or ids.ndim != 2 or not np.issubdtype(ids.dtype, np.integer):
        raise InputError(
            f"{file} holds {getattr(ids, 'dtype', type(ids).__name__)} of shape"
            f" {getattr(ids, 'shape', '?')}: expected whole numbers (sequence, position)"
        )
    if ids.size == 0 or ids.min() < 0:
        raise InputError(f"{file} holds no ids, or ids below 0: expected ids from 0")
    return add_ids(store_uri, name, list(ids))


def add_ids(store_uri: str, name: str, sequences: Sequence[NDArray[np.integer]]) -> AddedCorpus:
    """Add sequences of token ids, or more of them; the store is made when there is none.

    Args:
        store_uri: The store.
        name: Name of the corpus.
        sequences: Ids of each sequence, each (position,). If the first of them are the corpus of
            that name, the others come after them.

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
    repository = Repository.open_or_create(store_uri)
    group = repository.read().get(name)
    added = AddedCorpus(name, IDS, len(rows), sum(map(len, rows)), spec.content_sha256)
    if isinstance(group, zarr.Group) and "token_id" in group:
        held = held_sequences(group)
        former = digest([ids.tobytes() for ids in rows[:held]])
        if held < len(rows) and group.attrs["content_sha256"] == former:
            spec = grown_spec(group, spec, (held, len(rows)), spec.content_sha256)
            grow_corpus(repository, spec, id_columns(rows[held:], held), former_sha256=former)
            return replace(added, grown_from=held)
    create_id_corpus(repository, spec, sequences=rows)
    return added


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
