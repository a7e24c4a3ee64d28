"""Digests of the token columns of a model, by which a census knows that they are the ones stored.

Checksums of chunks say that rows are as they were written; these say that their labels are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
from zarr.abc.store import Store

from .columns import Column, read_columns
from .extent import N_TOKENS, extents_of, token_counts
from .identity import JSON
from .listing import GroupNode
from .schema import (
    PLACE_COORDINATES,
    ROW_CHOICE,
    STEP,
    STEP_COORDINATES,
    TOKEN_COORDINATES,
    TOKEN_RATE,
)

TOKEN_DIGESTS: Final = "token_columns_sha256"
"""Attribute of a model's group: SHA-256 of each of its token columns."""

_TOKENS: Final = b"actlas tokens 1\n"
_SHIFTED: Final = "decoder"

Columns = Mapping[str, npt.NDArray[np.generic]]


def token_digests(columns: Columns) -> dict[str, JSON]:
    """Return the SHA-256 of each token column: its values, little-endian, one after the other."""
    declared = {**TOKEN_COORDINATES, **PLACE_COORDINATES}
    return {name: _digest(values, declared[name].dtype) for name, values in columns.items()}


def _digest(values: npt.NDArray[np.generic], dtype: str) -> str:
    encoded = np.asarray(values).astype(np.dtype(dtype).newbyteorder("<"))
    return hashlib.sha256(encoded.tobytes()).hexdigest()


def wrong_columns(node: GroupNode, columns: Columns) -> Iterator[tuple[str, str]]:
    """Compare token columns with the digests that were recorded when they were stored.

    Args:
        node: A model's group; those of early writers have no digests.
        columns: Its columns, whole.

    Yields:
        The name of each that differs, and how.
    """
    recorded = node.attrs.get(TOKEN_DIGESTS)
    if not isinstance(recorded, Mapping):
        return
    for name, found in token_digests(columns).items():
        if name in recorded and found != recorded[name]:
            yield (
                name,
                f"values have SHA-256 {str(found)[:12]}, {str(recorded[name])[:12]} was recorded"
                " when written",
            )


def wrong_tokens(
    store: Store, node: GroupNode, modality: JSON, columns: Columns
) -> Iterator[tuple[int, str]]:
    """Compare token ids and their sequences with the ``tokens_sha256`` of each complete step.

    Only where every token that a model was shown is a row of its own can they be compared: not
    where rows were chosen or pooled, not for a decoder, whose tokens are shifted, nor for items.

    Args:
        store: The Zarr store of a snapshot.
        node: A model's group.
        modality: Modality of its corpus.
        columns: Its token columns, whole.

    Yields:
        Each step that was made from other tokens, and how they differ.
    """
    shown_otherwise = ROW_CHOICE in node.attrs or TOKEN_RATE in node.attrs
    if shown_otherwise or modality not in ("text", "ids") or node.path.endswith(f"/{_SHIFTED}"):
        return
    capacity, axis = node.arrays[STEP].shape[0], len(columns["token_id"])
    names = (STEP, "complete", "tokens_sha256")
    steps, complete, recorded = read_columns(
        store, [Column(node.path, STEP_COORDINATES[name], capacity) for name in names]
    )
    counts = token_counts(store, node.path, capacity, axis)
    digests = {count: tokens_sha256(columns, count, n) for count, n in _lengths(node, axis)}
    for slot in np.flatnonzero(complete.astype(bool)).tolist():
        found, wanted = digests.get(int(counts[slot])), str(recorded[slot])
        if wanted and found is not None and found != wanted:
            yield (
                int(steps[slot]),
                f"token_id and sequence have SHA-256 {found[:12]}, the step was made from tokens"
                f" of {wanted[:12]}",
            )


def _lengths(node: GroupNode, axis: int) -> Iterator[tuple[int, int]]:
    """Yield the lengths that the token axis has had, with the number of sequences at each."""
    for facts in (*extents_of(node.attrs), {**node.attrs, N_TOKENS: axis}):
        count, sequences = facts.get(N_TOKENS), facts.get("n_sequences")
        if isinstance(count, int) and isinstance(sequences, int):
            yield count, sequences


def tokens_sha256(columns: Columns, n_tokens: int, n_sequences: int) -> str:
    """Return the SHA-256 of the first token ids and of where their sequences start.

    Args:
        columns: Token columns, ``token_id`` and ``sequence`` among them.
        n_tokens: How many of them count.
        n_sequences: Number of sequences, empty ones included.
    """
    sequence = np.asarray(columns["sequence"][:n_tokens], dtype=np.int64)
    offsets = np.searchsorted(sequence, np.arange(n_sequences + 1))
    digest = hashlib.sha256(_TOKENS)
    digest.update(offsets.astype("<i8").tobytes())
    digest.update(np.asarray(columns["token_id"][:n_tokens]).astype("<i4").tobytes())
    return digest.hexdigest()
