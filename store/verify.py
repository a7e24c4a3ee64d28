"""Proving what a store holds: every chunk is read, decoded and compared with what was written."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from .arrays import member, step_capacity
from .chunks import ActivationArray
from .columns import Column, read_columns
from .errors import CorruptChunkError, MissingChunkError, StoreError, TruncatedChunkError
from .extent import token_counts
from .layout import token_chunks
from .listing import GroupNode, list_groups
from .location import locate
from .open_model import OpenModel, open_models
from .pinned import model_group, site_layers, snapshot_root
from .repository import Repository
from .schema import (
    DEPTH_COORDINATES,
    PLACE_COORDINATES,
    STEP,
    STEP_COORDINATES,
    TOKEN_COORDINATES,
    site_variable,
    sites_among,
)
from .token_digests import wrong_columns, wrong_tokens
from .translation import first_line
from .undefined import undefined_tokens
from .verify_corpora import wrong_texts

Kind = Literal["missing", "truncated", "corrupt", "nonfinite"]

MAX_THREADS: Final = 16
"""Each holds one decoded chunk and its encoded bytes."""


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it was written.

    Attributes:
        kind: ``"missing"``: a chunk of a complete step is not there; ``"truncated"``: it is there
            in part; ``"corrupt"``: its bytes or values are not those written; ``"nonfinite"``: the
            values of a step that are NaN or infinite are not as many as were counted at write.
        path: Group of the model.
        site: Name of the array, empty for a finding about a whole step.
        step: Training step, None for an array without steps.
        layer: Label of the layer or block, None for an array without either.
        tokens: First token and one past the last, None for a finding about more than a chunk.
        detail: What was found, and what was expected.
    """

    kind: Kind
    path: str
    site: str
    step: int | None
    layer: int | None
    tokens: tuple[int, int] | None
    detail: str


@dataclass(frozen=True)
class _Layer:
    """The chunks of one step and depth of a site.

    Some sites may be NaN by definition at the tokens that are ``undefined``.
    """

    array: ActivationArray
    step: int
    slot: int
    depth: int | None
    undefined: npt.NDArray[np.bool_] | None


def census(
    repository: Repository,
    path: str | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[Finding]:
    """Read every chunk of every complete step, and compare it with the checksum of its values.

    Texts and items of corpora are compared with the digests they were added with.

    Memory is bounded by the number of threads, not by what is stored.

    Args:
        repository: The store.
        path: ``corpus``, ``corpus/model`` or ``corpus/model/stack``; all of the store by default.
        progress: Called with the number of layers of steps checked so far, and of all.

    Returns:
        What is not as it was written, in the order of the store; nothing for a sound store.

    Raises:
        UnknownNameError: If there is nothing called ``path``.
        StoreError: If the store cannot be reached.
    """
    snapshot = repository.snapshot_id()
    root = snapshot_root(repository.uri, snapshot)
    listing = list_groups(model_group(repository.uri, snapshot, path) if path else root)
    nodes = [node for node in listing.walk() if STEP in node.arrays]
    models = open_models(repository.uri, snapshot, nodes)
    findings = [finding for node in nodes for finding in _check_tables(repository, snapshot, node)]
    findings += [
        Finding("corrupt", node.path, name, None, None, None, detail)
        for node in listing.walk()
        for name, detail in wrong_texts(root, node)
    ]
    layers = [layer for model in models for layer in _layers(model)]
    nonfinite: dict[tuple[str, int], int] = defaultdict(int)
    with ThreadPoolExecutor(min(os.cpu_count() or 1, MAX_THREADS)) as pool:
        for done, (layer, result) in enumerate(zip(layers, pool.map(_check, layers), strict=True)):
            found, count = result
            findings.extend(found)
            nonfinite[layer.array.path, layer.step] += count
            if progress is not None:
                progress(done + 1, len(layers))
    findings.extend(_check_counts(models, nonfinite, findings))
    return findings


def _layers(model: OpenModel) -> Iterator[_Layer]:
    """Yield the layers of each step, hidden rows of steps longer than what is shown included."""
    origin = model.origin
    group = model_group(origin.uri, origin.snapshot, origin.path)
    directory = locate(origin.uri).directory
    axis = member(group, "token_id").shape[0]
    counts = token_counts(group.store, group.path, step_capacity(group), axis).tolist()
    for site in sites_among(model.node.arrays):
        holds = site_layers(origin.uri, origin.snapshot, origin.path, site)
        undefined = undefined_tokens(group, site_variable(site))
        arrays = {n: ActivationArray(group, site, n, directory=directory) for n in set(counts)}
        for step, slot in zip(model.slots.steps.tolist(), model.slots.slots.tolist(), strict=True):
            if not holds[slot].any():
                continue
            array = arrays[counts[slot]]
            if array.depth_dim is None:
                yield _Layer(array, step, slot, None, undefined)
            else:
                for depth in np.flatnonzero(holds[slot]).tolist():
                    yield _Layer(array, step, slot, depth, undefined)


def _check(layer: _Layer) -> tuple[list[Finding], int]:
    """Check the chunks of one layer; also count its values that are not finite."""
    array, findings, nonfinite = layer.array, [], 0
    for number in range(token_chunks(array.n_tokens, array.rows)):
        start = number * array.rows
        stop = min(start + array.rows, array.n_tokens)
        try:
            values = array.read(layer.slot, layer.depth, start, stop)
        except (MissingChunkError, CorruptChunkError) as error:
            findings.append(_finding(layer, number, _kind(error), str(error)))
            continue
        finite = np.isfinite(values)
        if layer.undefined is not None:
            finite |= layer.undefined[start:stop] & np.isnan(values)
        nonfinite += int(np.count_nonzero(~finite))
    return findings, nonfinite


def _kind(error: StoreError) -> Kind:
    if isinstance(error, MissingChunkError):
        return "missing"
    return "truncated" if isinstance(error, TruncatedChunkError) else "corrupt"


def _finding(layer: _Layer, number: int, kind: Kind, detail: str) -> Finding:
    place = layer.array.place(layer.slot, layer.depth, number)
    label = None if place.depth is None else place.depth[1]
    return Finding(kind, place.path, place.site, place.step, label, place.tokens, detail)


def _check_tables(repository: Repository, snapshot: str, node: GroupNode) -> list[Finding]:
    """Read the coordinates of a model whole, and compare the tokens with their digests."""
    root = snapshot_root(repository.uri, snapshot)
    findings, columns = [], {}
    places = [name for name in PLACE_COORDINATES if name in node.arrays]
    for name in (*TOKEN_COORDINATES, *places, *DEPTH_COORDINATES):
        try:
            columns[name] = np.asarray(member(root, f"{node.path}/{name}")[:])
        except Exception as error:  # noqa: BLE001 - whatever the codec says, it cannot be read
            detail = f"cannot be read: {first_line(error)}"
            findings.append(Finding("corrupt", node.path, name, None, None, None, detail))
    if findings:
        return findings
    tokens = {name: columns[name] for name in columns if name not in DEPTH_COORDINATES}
    findings += [
        Finding("corrupt", node.path, name, None, None, None, detail)
        for name, detail in wrong_columns(node, tokens)
    ]
    modality = root[node.path.partition("/")[0]].attrs.get("modality")
    findings += [
        Finding("corrupt", node.path, "token_id", step, None, None, detail)
        for step, detail in wrong_tokens(root.store, node, modality, tokens)
    ]
    return findings


def _check_counts(
    models: Sequence[OpenModel],
    counted: Mapping[tuple[str, int], int],
    findings: Sequence[Finding],
) -> list[Finding]:
    """Compare how many values are not finite with what writers counted, in steps read whole."""
    unread = {(finding.path, finding.step) for finding in findings}
    variable = STEP_COORDINATES["nonfinite"]
    found = []
    for model in models:
        path, size = model.node.path, model.node.arrays[STEP].shape[0]
        store = snapshot_root(model.origin.uri, model.origin.snapshot).store
        (recorded,) = read_columns(store, [Column(path, variable, size)])
        for step, slot in zip(model.slots.steps.tolist(), model.slots.slots.tolist(), strict=True):
            seen, wanted = counted.get((path, step), 0), int(recorded[slot])
            if seen != wanted and (path, step) not in unread:
                detail = f"{seen} values are NaN or infinite, {wanted} were when written"
                found.append(Finding("nonfinite", path, "", step, None, None, detail))
    return found
