"""Storing dumped tensors as the steps of a model, a few chunks of rows in memory at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import zarr

from store.corpora import CorpusSpec, create_id_corpus
from store.create import ArraySpec, create_model
from store.errors import NonFiniteError, StoreError
from store.identity import JSON
from store.repository import Repository
from store.request import AlreadyStored
from store.schema import BLOCK, DIM, LAYER, SITES, TOKEN, TOKEN_COORDINATES, node_name
from store.unused import remove_unused_corpus, remove_unused_model
from store.write import StepWriter, reserve_step

from .agreement import UNKNOWN, require_agreement, require_sequences
from .layers import Layers, one_shape, open_step
from .table import ROW, LabelledTensor

Integers = npt.NDArray[np.int64]

_REMEDY: Final = "Look at the tensors, or store and count such values: --allow-nonfinite"


@dataclass(frozen=True)
class Imported:
    """What became of tensors.

    Attributes:
        stored: The steps that were stored; others were there already.
        unchecked: What could not be compared with the corpus, as a sentence; empty where all was,
            or where the corpus was made of the tokens.
    """

    stored: tuple[int, ...]
    unchecked: str


def import_tensors(
    repository: Repository,
    *,
    corpus: str,
    model: str,
    labels: Sequence[LabelledTensor],
    tokens: Mapping[str, Integers] | None = None,
    causal: bool = False,
    allow_nonfinite: bool = False,
    tell: Callable[[int, int], None] = lambda _more, _total: None,
) -> Imported:
    """Store tensors as activations of a model over a corpus.

    A tensor is (token, dim) or (sequence, position, dim); with no layer in its label, its first
    axis is the layer or block. The corpus is created from the token ids unless it is there.
    Importing the same again does nothing.

    Args:
        repository: The store.
        corpus: Name of the corpus.
        model: Id of the model.
        labels: What each tensor is: every layer of every site of each step.
        tokens: Token coordinates, as :func:`read_tokens` gives them; by default every row is a
            token, and sequences are those of three-dimensional tensors, else one.
        causal: Whether tokens attend only to earlier ones, so that the first of each sequence is
            no content.
        allow_nonfinite: Store NaN and infinity, counted, instead of refusing them.
        tell: Called with the bytes of values just taken in, and of all.

    Returns:
        What became of them.

    Raises:
        StoreError: If layers are missing, shapes do not agree, or the tokens are not those of a
            corpus that is there.
        UnknownNameError: If a file has no such tensor.
        IdentityConflictError: If something else is stored under a step or the names.
        NonFiniteError: If values are NaN or infinite.
    """
    by_step: dict[int, list[LabelledTensor]] = {}
    for label in labels:
        by_step.setdefault(label.step, []).append(label)
    opened = {step: open_step(step, of_step) for step, of_step in by_step.items()}
    sites = one_shape(opened)
    columns = _columns(next(iter(sites.values())), tokens)
    path = f"{corpus}/{node_name(model)}"
    digests: dict[Path, str] = {}
    sizes = {step: _float_bytes(layers, len(columns[ROW])) for step, layers in opened.items()}
    total = sum(sizes.values())
    stored = []
    held = repository.read().get(corpus)
    unchecked = ""
    if isinstance(held, zarr.Group):
        unchecked = require_agreement(held, corpus, columns)
    with _taken_back_unused(repository, corpus, path):
        _create(repository, corpus, model, sites, columns, causal=causal)
        for step, of_step in by_step.items():
            identity = _identity(of_step, digests)
            writer = reserve_step(
                repository,
                path,
                step,
                identity=identity,
                sites=list(opened[step]),
                allow_nonfinite=allow_nonfinite,
            )
            if isinstance(writer, AlreadyStored):
                tell(sizes[step], total)
                continue
            with writer, _told_remedy():
                _write(writer, opened[step], columns[ROW], lambda more: tell(more, total))
            stored.append(step)
    return Imported(tuple(stored), unchecked)


@contextmanager
def _told_remedy() -> Iterator[None]:
    try:
        yield
    except NonFiniteError as error:
        place = error.site, error.layer, error.count, error.where
        raise NonFiniteError(*place, remedy=_REMEDY) from error


@contextmanager
def _taken_back_unused(repository: Repository, corpus: str, path: str) -> Iterator[None]:
    """After an error, remove the groups of a model and of a new corpus that hold no step."""
    was_there = corpus in repository.read()
    try:
        yield
    except BaseException:
        with suppress(StoreError):
            remove_unused_model(repository, path)
            if not was_there:
                remove_unused_corpus(repository, corpus)
        raise


def _columns(layers: Layers, tokens: Mapping[str, Integers] | None) -> dict[str, Integers]:
    n_rows, _ = layers.shape
    row = np.arange(n_rows)
    length = layers.sequence_length or n_rows
    given = {"sequence": row // length} if tokens is None else dict(tokens)
    n_tokens = len(given["sequence"])
    rows = given.setdefault(ROW, np.arange(n_tokens))
    if (ROW not in (tokens or {}) and n_tokens != n_rows) or (rows.max(initial=-1) >= n_rows):
        raise StoreError(
            f"{n_tokens} tokens were described and tensors have {n_rows} rows; say in a column"
            f" {ROW!r} which row each token has"
        )
    sequence = given["sequence"].astype(np.int64)
    starts = np.flatnonzero(np.diff(sequence, prepend=-1))
    first = starts[np.searchsorted(starts, np.arange(n_tokens), side="right") - 1]
    defaults = {
        "position": np.arange(n_tokens) - first,
        "document": sequence,
        "special": np.zeros(n_tokens, dtype=np.int64),
    }
    unknown = np.full(n_tokens, UNKNOWN)
    return {name: defaults.get(name, unknown) for name in TOKEN_COORDINATES} | given


def _create(
    repository: Repository,
    corpus: str,
    model: str,
    sites: Mapping[str, Layers],
    columns: Mapping[str, Integers],
    *,
    causal: bool,
) -> None:
    if corpus not in repository.read():
        ids, sequence = columns["token_id"], columns["sequence"]
        require_sequences(corpus, "sequences", len(np.unique(sequence)), columns)
        sequences = np.split(ids, np.flatnonzero(np.diff(sequence)) + 1)
        content = hashlib.sha256(np.stack([ids, sequence]).astype("<i8").tobytes()).hexdigest()
        spec = CorpusSpec(corpus, "ids", {"unit": "imported"}, 0, content)
        create_id_corpus(repository, spec, sequences=sequences)
    specs = []
    blocks = 0
    for site, layers in sites.items():
        sizes = {TOKEN: len(columns["sequence"]), DIM: layers.shape[1]}
        for depth in (LAYER, BLOCK):
            if depth in SITES[site].dims:
                sizes[depth] = len(layers.tensors)
                blocks = max(blocks, len(layers.tensors) - (depth == LAYER))
        specs.append(ArraySpec(SITES[site], sizes))
    attributes: dict[str, JSON] = {
        "n_blocks": blocks,
        "width": max(layers.shape[1] for layers in sites.values()),
        "imported": True,
        "causal": causal,
    }
    tokens = {name: columns[name] for name in TOKEN_COORDINATES}
    create_model(repository, corpus, model, arrays=specs, tokens=tokens, attributes=attributes)


def _identity(labels: Iterable[LabelledTensor], digests: dict[Path, str]) -> dict[str, JSON]:
    imported: dict[str, JSON] = {}
    for label in labels:
        if label.path not in digests:
            with label.path.open("rb") as file:
                digests[label.path] = hashlib.file_digest(file, "sha256").hexdigest()
        name = label.site if label.layer is None else f"{label.site}.{label.layer}"
        imported[name] = {"tensor": label.tensor, "file_sha256": digests[label.path]}
    return {"imported": imported}


def _float_bytes(sites: Mapping[str, Layers], n_tokens: int) -> int:
    """Return what a step takes as float32, before it is encoded."""
    width = sum(len(layers.tensors) * layers.shape[1] for layers in sites.values())
    return width * n_tokens * np.dtype(np.float32).itemsize


def _write(
    writer: StepWriter, sites: Mapping[str, Layers], rows: Integers, tell: Callable[[int], None]
) -> None:
    for site, layers in sites.items():
        for start in range(0, writer.n_tokens, writer.chunk_rows):
            here = rows[start : start + writer.chunk_rows]
            values = np.stack([tensor.rows(here) for tensor in layers.tensors])
            deep = LAYER in SITES[site].dims or BLOCK in SITES[site].dims
            writer.write_block(site, start, values if deep else values[0])
            tell(values.size * np.dtype(np.float32).itemsize)
    dtypes = sorted({tensor.dtype for layers in sites.values() for tensor in layers.tensors})
    writer.commit(provenance={"revision": "imported", "source_dtype": "/".join(dtypes)})
