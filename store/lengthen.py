"""Lengthening the token axis of a model whose corpus grew; steps follow one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import zarr

from .arrays import add_step_coordinates, create_table, member, resize_tokens, step_capacity
from .cells import write_cells
from .columns import Column, read_columns
from .extent import EXTENTS, N_TOKENS, extents_of
from .format_number import require_format
from .identity import JSON
from .schema import (
    GROWN_FORMAT,
    PLACE_COORDINATES,
    STEP,
    STEP_COORDINATES,
    TOKEN_COORDINATES,
)
from .token_digests import TOKEN_DIGESTS, token_digests

GROWTH: Final = "growth"
"""Attribute of a corpus that grew: what it was each time and is now, the shortest first."""

GROWN_FROM: Final = "corpus_grown_from"
"""Attribute of a model: digests of what its corpus was before it grew."""

_FACTS: Final = ("n_sequences", "truncated_sequences", "corpus_sha256", GROWN_FROM)
"""Attributes of a model that are about its tokens, and change as they become more."""

Columns = Mapping[str, npt.NDArray[np.generic]]


def follows(
    corpus: zarr.Group, group: zarr.Group, tokens: Columns, facts: Mapping[str, JSON]
) -> bool:
    """Tell whether tokens are those of a model's group and what its corpus grew by, if anything.

    Args:
        corpus: The group of the corpus.
        group: The model's group.
        tokens: All token coordinates, each (token,).
        facts: Attributes of the model over its longer corpus.
    """
    stored = member(group, "token_id").shape[0]
    digests = corpus_digests(corpus)
    own, wanted = group.attrs.get("corpus_sha256"), facts.get("corpus_sha256")
    if own not in digests or wanted not in digests[digests.index(own) :]:
        return False
    if len(tokens["token_id"]) < stored + (own == wanted):
        return False
    return all(
        np.array_equal(np.asarray(member(group, name)[:]), np.asarray(tokens[name][:stored]))
        for name in tokens
    )


def corpus_digests(corpus: zarr.Group) -> list[JSON]:
    """Return the digests of all that a corpus was and is; nothing if it never grew."""
    growth = corpus.attrs.get(GROWTH, ())
    assert isinstance(growth, Sequence)
    return [entry["content_sha256"] for entry in growth if isinstance(entry, Mapping)]


def lengthen(
    root: zarr.Group, group: zarr.Group, tokens: Columns, facts: Mapping[str, JSON]
) -> None:
    """Give every array of a model's group room for more tokens; no step has them yet.

    Args:
        root: The root group, in a transaction.
        group: The model's group.
        tokens: All token coordinates, each (token,), of which the first are those stored.
        facts: Attributes of the model over its longer corpus.
    """
    stored = member(group, "token_id").shape[0]
    _record_counts(group, stored)
    for name, column in tokens.items():
        del group[name]
        create_table(group, {**TOKEN_COORDINATES, **PLACE_COORDINATES}[name], column)
    resize_tokens(group, len(tokens["token_id"]))
    attrs = group.attrs.asdict()
    former: dict[str, JSON] = {name: attrs[name] for name in _FACTS if name in attrs}
    former = {GROWN_FROM: [], **former, N_TOKENS: stored}
    changed = {name: facts[name] for name in _FACTS if name in facts}
    changed[TOKEN_DIGESTS] = token_digests(tokens)
    group.attrs.update({**changed, EXTENTS: [*extents_of(attrs), former]})
    require_format(root, GROWN_FORMAT)


def _record_counts(group: zarr.Group, n_tokens: int) -> None:
    """Write down how many tokens the steps have that do not say."""
    add_step_coordinates(group)
    capacity = step_capacity(group)
    names = (STEP, "complete", N_TOKENS)
    columns = [Column(group.path, STEP_COORDINATES[name], capacity) for name in names]
    steps, complete, counts = read_columns(group.store, columns)
    silent = complete.astype(bool) & (steps.astype(np.int64) >= 0) & (counts == 0)
    for slot in np.flatnonzero(silent).tolist():
        write_cells(group, slot, {N_TOKENS: n_tokens})
