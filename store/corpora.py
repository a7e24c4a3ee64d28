"""Corpora: the texts or ids that models are run over, created once, and made longer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import zarr

from .arrays import create_table, member, string_column
from .errors import (
    ConflictError,
    IdentityConflictError,
    InvalidNameError,
    StoreError,
    UnknownNameError,
)
from .format_number import require_format
from .identity import JSON, identity_difference
from .lengthen import GROWTH
from .repository import Repository
from .schema import (
    CORPUS_VARIABLES,
    GROWN_FORMAT,
    TOKEN_COORDINATES,
    Variable,
    node_name,
)


@dataclass(frozen=True)
class CorpusSpec:
    """What a corpus is, apart from its texts.

    Attributes:
        name: Name of the corpus and of its group.
        modality: ``"text"``, ``"ids"`` and so on.
        chunking: How sources were cut into texts, as ``{"unit": "chars", "size": 512}``.
        seed: Seed of the subsample, if any.
        content_sha256: SHA-256 that stands for the whole content.
        options: Anything else that decided what the texts are.
        growth: What it was each time before it grew, and is now; nothing if it never did.
    """

    name: str
    modality: str
    chunking: Mapping[str, JSON]
    seed: int
    content_sha256: str
    options: Mapping[str, JSON] = field(default_factory=dict)
    growth: Sequence[Mapping[str, JSON]] = ()

    def attributes(self) -> dict[str, JSON]:
        """Return the attributes of the corpus's group."""
        growth: dict[str, JSON] = {GROWTH: list(self.growth)} if self.growth else {}
        return growth | {
            "modality": self.modality,
            "chunking": dict(self.chunking),
            "seed": self.seed,
            "content_sha256": self.content_sha256,
            "options": dict(self.options),
        }


def create_corpus(
    repository: Repository,
    spec: CorpusSpec,
    *,
    texts: Sequence[str],
    sources: Sequence[str],
    source_starts: Sequence[int],
    labels: Sequence[str] | None = None,
) -> None:
    """Create a corpus of texts, unless the same one is there.

    Args:
        repository: The store.
        spec: What the corpus is.
        texts: The texts, one a sequence or document.
        sources: File or item each text came from.
        source_starts: First character of each text in its source.
        labels: Label of each text, None if they have none.

    Raises:
        IdentityConflictError: If another corpus has the name.
        StoreError: If the name cannot name a group, or there are no texts.
    """
    columns = text_columns(texts, sources, source_starts)
    if labels is not None:
        columns["text_label"] = string_column(labels)
    tables = [(CORPUS_VARIABLES[name], values) for name, values in columns.items()]
    _create_corpus(repository, spec, tables)


def create_id_corpus(
    repository: Repository, spec: CorpusSpec, *, sequences: Sequence[npt.NDArray[np.integer]]
) -> None:
    """Create a corpus of token ids for models without a tokenizer, unless the same one is there.

    Args:
        repository: The store.
        spec: What the corpus is.
        sequences: Token ids of each sequence.

    Raises:
        IdentityConflictError: If another corpus has the name.
        StoreError: If the name cannot name a group, or there are no tokens.
    """
    tables = [(TOKEN_COORDINATES[name], one) for name, one in id_columns(sequences).items()]
    _create_corpus(repository, spec, tables)


def text_columns(
    texts: Sequence[str], sources: Sequence[str], source_starts: Sequence[int]
) -> dict[str, npt.NDArray[np.generic]]:
    """Return the arrays of a corpus of texts, by name."""
    return {
        "text": string_column(texts),
        "text_sha256": string_column([hashlib.sha256(text.encode()).hexdigest() for text in texts]),
        "source": string_column(sources),
        "source_start": np.asarray(source_starts, dtype=np.int64),
    }


def id_columns(
    sequences: Sequence[npt.NDArray[np.integer]], first: int = 0
) -> dict[str, npt.NDArray[np.generic]]:
    """Return the arrays of a corpus of ids, by name.

    Args:
        sequences: Token ids of each sequence.
        first: Number of the first sequence.
    """
    lengths = [len(ids) for ids in sequences]
    ids = np.concatenate([*sequences, np.empty(0, np.int32)]).astype(np.int32)
    numbers = first + np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    return {"token_id": ids, "sequence": numbers}


def _create_corpus(
    repository: Repository,
    spec: CorpusSpec,
    tables: Sequence[tuple[Variable, npt.NDArray[np.generic]]],
) -> None:
    if node_name(spec.name) != spec.name:
        raise InvalidNameError(f"{spec.name!r} cannot name a corpus: expected a name without '/'")
    if len({len(values) for _, values in tables}) != 1 or len(tables[0][1]) == 0:
        sizes = ", ".join(f"{variable.name}: {len(values)}" for variable, values in tables)
        raise StoreError(f"corpus {spec.name!r} needs columns of one positive length, got {sizes}")

    def change(root: zarr.Group) -> None:
        stored = root.get(spec.name)
        if isinstance(stored, zarr.Group):
            refuse_other(
                f"corpus {spec.name!r}",
                identity_difference(attributes_without(stored, GROWTH), spec.attributes()),
                "Give the options it was stored with, or give the corpus another name",
            )
            return
        group = root.create_group(spec.name, attributes=spec.attributes())
        for variable, values in tables:
            create_table(group, variable, values)

    columns = {variable.name: values for variable, values in tables}
    repository.update(f"add corpus {spec.name}: {_amount(columns)}", change)


def _amount(columns: Mapping[str, npt.NDArray[np.generic]], more: str = "") -> str:
    """Say how many texts, or sequences of ids, columns hold."""
    numbers = columns.get("sequence")
    kind, count = "text", len(next(iter(columns.values())))
    if numbers is not None:
        kind, count = "sequence", len(np.unique(numbers))
    return f"{count:,}{more} {kind}{'' if count == 1 else 's'}"


def grow_corpus(
    repository: Repository,
    spec: CorpusSpec,
    columns: Mapping[str, npt.NDArray[np.generic]],
    *,
    former_sha256: str,
) -> None:
    """Put more texts, or ids, after those of a corpus.

    Models keep their tokens until they are run over the longer corpus.

    Args:
        repository: The store.
        spec: What the corpus is from now on; its ``growth`` says what it was.
        columns: Every array of the corpus: the new values alone.
        former_sha256: Digest of the content that it has now.

    Raises:
        UnknownNameError: If there is no such corpus.
        ConflictError: If it has another content by now.
    """

    def change(root: zarr.Group) -> None:
        group = root.get(spec.name)
        if not isinstance(group, zarr.Group):
            raise UnknownNameError("corpus", spec.name, root.group_keys(), repository.uri)
        if group.attrs["content_sha256"] != former_sha256:
            raise ConflictError(f"corpus {spec.name!r} was changed by another writer; try again")
        for name, values in columns.items():
            stored = np.asarray(member(group, name)[:])
            del group[name]
            variable = {**CORPUS_VARIABLES, **TOKEN_COORDINATES}[name]
            whole = np.concatenate([stored, np.asarray(values, dtype=stored.dtype)])
            create_table(group, variable, whole)
        group.attrs.update(spec.attributes())
        require_format(root, GROWN_FORMAT)

    repository.update(f"grow corpus {spec.name}: {_amount(columns, ' more')}", change)


def refuse_other(what: str, differences: Sequence[str], remedy: str) -> None:
    """Refuse what differs from what is stored under its name, if anything does.

    Raises:
        IdentityConflictError: If there are differences.
    """
    if differences:
        raise IdentityConflictError(what, differences, remedy)


def attributes_without(group: zarr.Group, *names: str) -> dict[str, JSON]:
    """Return the attributes of a group but some."""
    return {name: value for name, value in group.attrs.asdict().items() if name not in names}
