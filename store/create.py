"""Groups, arrays and step capacity: everything a writer needs, created before it writes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import zarr

from .arrays import create_site, create_step_coordinates, create_table, member, string_column
from .depths import relative_depth
from .errors import IdentityConflictError, StoreError, UnknownNameError
from .identity import JSON, column_difference, identity_difference
from .layout import chunk_rows
from .repository import Repository
from .schema import (
    CORPUS_VARIABLES,
    DEPTH_COORDINATES,
    ITEM_VARIABLES,
    PLACE_COORDINATES,
    STACKS,
    STEP,
    TOKEN_COORDINATES,
    Variable,
    node_name,
)

STEP_CAPACITY = 64
"""Slots a model group is created with, and grows by; an empty slot costs nothing."""


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
    """

    name: str
    modality: str
    chunking: Mapping[str, JSON]
    seed: int
    content_sha256: str
    options: Mapping[str, JSON] = field(default_factory=dict)

    def attributes(self) -> dict[str, JSON]:
        """Return the attributes of the corpus's group."""
        return {
            "modality": self.modality,
            "chunking": dict(self.chunking),
            "seed": self.seed,
            "content_sha256": self.content_sha256,
            "options": dict(self.options),
        }


@dataclass(frozen=True)
class ArraySpec:
    """One site of a model, and its sizes.

    Attributes:
        variable: The site's declaration.
        sizes: Size of each of its dimensions except ``step``.
    """

    variable: Variable
    sizes: Mapping[str, int]


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
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    columns: dict[str, npt.NDArray[np.generic]] = {
        "text": string_column(texts),
        "text_sha256": string_column(digests),
        "source": string_column(sources),
        "source_start": np.asarray(source_starts, dtype=np.int64),
    }
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
    lengths = [len(ids) for ids in sequences]
    ids = np.concatenate([*sequences, np.empty(0, np.int32)]).astype(np.int32)
    numbers = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    tables = [(TOKEN_COORDINATES["token_id"], ids), (TOKEN_COORDINATES["sequence"], numbers)]
    _create_corpus(repository, spec, tables)


def _create_corpus(
    repository: Repository,
    spec: CorpusSpec,
    tables: Sequence[tuple[Variable, npt.NDArray[np.generic]]],
) -> None:
    if node_name(spec.name) != spec.name:
        raise StoreError(f"{spec.name!r} cannot name a corpus: expected a name without '/'")
    if len({len(values) for _, values in tables}) != 1 or len(tables[0][1]) == 0:
        sizes = ", ".join(f"{variable.name}: {len(values)}" for variable, values in tables)
        raise StoreError(f"corpus {spec.name!r} needs columns of one positive length, got {sizes}")

    def change(root: zarr.Group) -> None:
        stored = root.get(spec.name)
        if isinstance(stored, zarr.Group):
            _refuse_other(
                f"corpus {spec.name!r}",
                identity_difference(stored.attrs.asdict(), spec.attributes()),
                "Give the corpus another name",
            )
            return
        group = root.create_group(spec.name, attributes=spec.attributes())
        for variable, values in tables:
            create_table(group, variable, values)

    repository.update(f"add corpus {spec.name}", change)


def create_model(
    repository: Repository,
    corpus: str,
    model: str,
    *,
    arrays: Sequence[ArraySpec],
    tokens: Mapping[str, npt.NDArray[np.generic]],
    attributes: Mapping[str, JSON],
    step_capacity: int = STEP_CAPACITY,
    stack: str | None = None,
) -> None:
    """Create a model's group over a corpus, or add the sites it does not have yet.

    Args:
        repository: The store.
        corpus: Name of the corpus, which must be there.
        model: Id of the model, as ``EleutherAI/pythia-70m``.
        arrays: The sites and their sizes.
        tokens: Every one of ``schema.TOKEN_COORDINATES``, and those of ``PLACE_COORDINATES`` that
            apply, each (token,).
        attributes: Facts about the model; ``n_blocks`` and ``width`` are needed, ``chunk_rows`` is
            derived from the width unless given. A stage of a model says with ``depth_start`` how
            many blocks come before its layer 0, and with ``depth_blocks`` how many in all.
        step_capacity: Slots to create, and to grow by when they are full.
        stack: One of ``schema.STACKS``, for a model that has several.

    Raises:
        UnknownNameError: If there is no such corpus.
        IdentityConflictError: If the group is there with other tokens, sizes or attributes.
        StoreError: If token coordinates are missing or of different lengths, or the corpus uses the
            model's name itself.
    """
    name = node_name(model)
    if name in {**CORPUS_VARIABLES, **TOKEN_COORDINATES, **ITEM_VARIABLES}:
        raise StoreError(f"{model!r} is an array of the corpus, so no model can have that name")
    if stack not in (None, *STACKS):
        raise StoreError(f"{stack!r} is no stack of a model: expected one of {', '.join(STACKS)}")
    n_tokens = _token_count(tokens)
    facts = {"model": model, **attributes}
    facts.setdefault("chunk_rows", chunk_rows(_size(facts, "width"), n_tokens))
    path = "/".join(filter(None, (corpus, name, stack)))

    def change(root: zarr.Group) -> None:
        held = root.get(corpus)
        if not isinstance(held, zarr.Group):
            raise UnknownNameError("corpus", corpus, root.group_keys(), repository.uri)
        _check_corpus(held, corpus, facts)
        stored = root.get(path)
        if isinstance(stored, zarr.Group):
            _refuse_other(
                f"model {path!r}",
                _model_difference(stored, arrays, tokens, facts),
                "Give the model or the corpus another name",
            )
            group = stored
        else:
            group = _new_model(root, path, tokens, facts | {"step_capacity": step_capacity})
        for spec in arrays:
            if spec.variable.name not in group:
                create_site(group, spec.variable, spec.sizes)

    repository.update(f"add model {path}", change)


def _new_model(
    root: zarr.Group,
    path: str,
    tokens: Mapping[str, npt.NDArray[np.generic]],
    facts: Mapping[str, JSON],
) -> zarr.Group:
    group = root.create_group(path, attributes=dict(facts))
    for name, variable in {**TOKEN_COORDINATES, **PLACE_COORDINATES}.items():
        if name in tokens:
            create_table(group, variable, tokens[name])
    layers = np.arange(_size(facts, "n_blocks") + 1)
    relative = relative_depth(facts, layers)
    depths = {"layer": layers, "block": layers[1:], "relative_depth": relative}
    for name, values in depths.items():
        create_table(group, DEPTH_COORDINATES[name], values)
    create_step_coordinates(group, _size(facts, "step_capacity"))
    return group


def _model_difference(
    group: zarr.Group,
    arrays: Sequence[ArraySpec],
    tokens: Mapping[str, npt.NDArray[np.generic]],
    facts: Mapping[str, JSON],
) -> list[str]:
    """Return how a stored model group differs from the one asked for, line by line."""
    stored = {key: value for key, value in group.attrs.asdict().items() if key != "step_capacity"}
    lines = identity_difference(stored, {k: v for k, v in facts.items() if k != "step_capacity"})
    for name, column in tokens.items():
        held = np.asarray(member(group, name)[:]) if name in group else np.empty(0)
        lines.extend(column_difference(name, held, np.asarray(column)))
    for spec in arrays:
        array = group.get(spec.variable.name)
        if isinstance(array, zarr.Array):
            shape = dict(zip(spec.variable.dims, array.shape, strict=True))
            shape.pop(STEP)
            lines.extend(
                f"{spec.variable.name} {line}" for line in identity_difference(shape, spec.sizes)
            )
    return lines


def _refuse_other(what: str, differences: Sequence[str], remedy: str) -> None:
    if differences:
        raise IdentityConflictError(what, differences, remedy)


def _check_corpus(corpus: zarr.Group, name: str, facts: Mapping[str, JSON]) -> None:
    """Refuse token coordinates made from another corpus than the stored one."""
    if "corpus_sha256" in facts:
        stored = {"content_sha256": corpus.attrs["content_sha256"]}
        wanted = {"content_sha256": facts["corpus_sha256"]}
        _refuse_other(
            f"corpus {name!r}", identity_difference(stored, wanted), "Name the right corpus"
        )


def _token_count(tokens: Mapping[str, npt.NDArray[np.generic]]) -> int:
    missing = [name for name in TOKEN_COORDINATES if name not in tokens]
    if missing:
        raise StoreError(f"token coordinates {', '.join(missing)} are missing")
    lengths = {name: len(column) for name, column in tokens.items()}
    if len(set(lengths.values())) != 1 or not lengths["token_id"]:
        raise StoreError(f"token coordinates need one positive length, got {lengths}")
    return lengths["token_id"]


def _size(facts: Mapping[str, JSON], name: str) -> int:
    value = facts.get(name)
    if not isinstance(value, int) or value < 0:
        raise StoreError(f"attribute {name!r} must be a whole number, got {value!r}")
    return value
