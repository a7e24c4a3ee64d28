"""Groups, arrays and step capacity: everything a writer needs, created before it writes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import zarr

from .arrays import (
    create_site,
    create_step_coordinates,
    create_table,
    laid_aside,
    member,
    step_capacity,
)
from .codec import DEFAULT_CODEC, Codec
from .corpora import attributes_without, refuse_other
from .depths import relative_depth
from .errors import InvalidNameError, StoreError, UnknownNameError
from .extent import EXTENTS
from .held_layers import axis_labels, axis_layers, widen
from .identity import JSON, column_difference, identity_difference
from .layout import chunk_rows
from .lengthen import GROWN_FROM, corpus_digests, follows, lengthen
from .repository import Repository
from .schema import (
    BLOCK,
    CORPUS_VARIABLES,
    DEPTH_COORDINATES,
    ITEM_VARIABLES,
    LAYER,
    LAYER_CHOICE,
    LAYERS_BY_STEP,
    PLACE_COORDINATES,
    SITES_BY_DEFAULT,
    STACKS,
    STEP,
    TOKEN,
    TOKEN_COORDINATES,
    TOKEN_RATE,
    Variable,
    node_name,
)
from .token_digests import TOKEN_DIGESTS, token_digests

_GROWING: Final = (
    "step_capacity",
    EXTENTS,
    GROWN_FROM,
    LAYER_CHOICE,
    LAYERS_BY_STEP,
    TOKEN_DIGESTS,
    TOKEN_RATE,
    SITES_BY_DEFAULT,
    "stacks",
)
"""Attributes of a model in which a stored one may differ from the same one wanted: earlier versions
named no default sites, and the encoder alone as the stack of a model of sounds that has a decoder,
too."""

_DEPTHS: Final = (LAYER, BLOCK)
"""Dimensions that grow as more layers are asked for, and are not compared."""

STEP_CAPACITY = 64
"""Slots a model group is created with, and grows by; an empty slot costs nothing."""


@dataclass(frozen=True)
class ArraySpec:
    """One site of a model, and its sizes.

    Attributes:
        variable: The site's declaration.
        sizes: Size of each of its dimensions except ``step``.
        attributes: Facts about the array, beside those of its declaration.
    """

    variable: Variable
    sizes: Mapping[str, int]
    attributes: Mapping[str, JSON] = field(default_factory=dict)


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
    codec: Codec = DEFAULT_CODEC,
) -> None:
    """Create a model's group over a corpus, or add the sites and layers it does not have yet.

    Args:
        repository: The store.
        corpus: Name of the corpus, which must be there.
        model: Id of the model, as ``EleutherAI/pythia-70m``.
        arrays: The sites and their sizes.
        tokens: Every one of ``schema.TOKEN_COORDINATES``, and those of ``PLACE_COORDINATES`` that
            apply, each (token,).
        attributes: Facts about the model; ``n_blocks`` and ``width`` are needed, ``chunk_rows`` is
            derived from the width unless given; ``layer_choice`` names the layers that a step is to
            have, where those are not all. A stage of a model says with ``depth_start`` how
            many blocks come before its layer 0, and with ``depth_blocks`` how many in all.
        step_capacity: Slots to create, and to grow by when they are full.
        stack: One of ``schema.STACKS``, for a model that has several.
        codec: What the chunks of new arrays are compressed with; those that are there keep theirs.

    Raises:
        UnknownNameError: If there is no such corpus.
        IdentityConflictError: If the group is there with other tokens, sizes or attributes.
        InvalidNameError: If the corpus uses the model's name itself.
        StoreError: If token coordinates are missing or of different lengths.
    """
    name = node_name(model)
    if name in {**CORPUS_VARIABLES, **TOKEN_COORDINATES, **ITEM_VARIABLES}:
        raise InvalidNameError(
            f"{model!r} is an array of the corpus, so no model can have that name"
        )
    if stack not in (None, *STACKS):
        raise StoreError(f"{stack!r} is no stack of a model: expected one of {', '.join(STACKS)}")
    n_tokens = _token_count(tokens)
    facts = {"model": model, **attributes}
    widest = max((_row_values(spec) for spec in arrays), default=0)
    facts.setdefault("chunk_rows", chunk_rows(_size(facts, "width"), n_tokens, widest))
    path = "/".join(filter(None, (corpus, name, stack)))

    def change(root: zarr.Group) -> str:
        held = root.get(corpus)
        if not isinstance(held, zarr.Group):
            raise UnknownNameError("corpus", corpus, root.group_keys(), repository.uri)
        _check_corpus(held, corpus, facts)
        former = _former_digests(held, facts)
        if former:
            facts[GROWN_FROM] = former
        stored = root.get(path)
        new: list[str] = []
        if isinstance(stored, zarr.Group):
            wanted = facts if "chunk_rows" in attributes else facts | _chunk_rows(stored)
            if follows(held, stored, tokens, wanted):
                lengthen(root, stored, tokens, wanted)
                new.append("more tokens")
            refuse_other(
                f"model {path!r}",
                _model_difference(stored, arrays, tokens, wanted),
                "The corpus grew meanwhile: run it again"
                if facts.get("corpus_sha256") in corpus_digests(held)[:-1]
                else "Give the model or the corpus another name",
            )
            group = stored
            before = axis_labels(group.attrs.asdict())
            if any(dim in spec.sizes for spec in arrays for dim in _DEPTHS):
                widen(root, group, axis_layers(facts))
            if axis_labels(group.attrs.asdict()) != before:
                new.append("more layers")
        else:
            group = _new_model(root, path, tokens, facts | {"step_capacity": step_capacity})
        lacking = [spec for spec in arrays if spec.variable.name not in group]
        new += [spec.variable.name for spec in lacking]
        if lacking:
            _create_sites(group, lacking, codec)
        what = "add model" if stored is None else "make room in"
        return f"{what} {path}: {', '.join(new)}"

    repository.update(str, change)


def _create_sites(group: zarr.Group, specs: Sequence[ArraySpec], codec: Codec) -> None:
    depths = {dim: len(labels) for dim, labels in axis_labels(group.attrs.asdict()).items()}
    capacity = step_capacity(group)
    with laid_aside(group) as aside:
        for spec in specs:
            own = {dim: depths.get(dim, size) for dim, size in spec.sizes.items()}
            create_site(aside, spec.variable, own, capacity, codec)
            if spec.attributes:
                member(aside, spec.variable.name).update_attributes(dict(spec.attributes))


def _new_model(
    root: zarr.Group,
    path: str,
    tokens: Mapping[str, npt.NDArray[np.generic]],
    facts: Mapping[str, JSON],
) -> zarr.Group:
    attributes = {**facts, TOKEN_DIGESTS: token_digests(tokens)}
    group = root.create_group(path, attributes=attributes)
    layers = np.array(axis_layers(facts))
    relative = relative_depth(facts, layers)
    depths = {"layer": layers, "block": layers[layers > 0], "relative_depth": relative}
    with laid_aside(group) as aside:
        for name, variable in {**TOKEN_COORDINATES, **PLACE_COORDINATES}.items():
            if name in tokens:
                create_table(aside, variable, tokens[name])
        for name, values in depths.items():
            create_table(aside, DEPTH_COORDINATES[name], values)
        create_step_coordinates(aside, _size(facts, "step_capacity"))
    return group


def _model_difference(
    group: zarr.Group,
    arrays: Sequence[ArraySpec],
    tokens: Mapping[str, npt.NDArray[np.generic]],
    facts: Mapping[str, JSON],
) -> list[str]:
    """Return how a stored model group differs from the one asked for, line by line."""
    unlike = {name: facts[name] for name in facts if name not in _GROWING}
    lines = identity_difference(attributes_without(group, *_GROWING), unlike)
    for name, column in tokens.items():
        held = np.asarray(member(group, name)[:]) if name in group else np.empty(0)
        lines.extend(column_difference(name, held, np.asarray(column)))
    for spec in arrays:
        array = group.get(spec.variable.name)
        if isinstance(array, zarr.Array):
            shape = dict(zip(spec.variable.dims, array.shape, strict=True))
            stored, wanted = (
                {dim: size for dim, size in sizes.items() if dim not in (STEP, *_DEPTHS)}
                for sizes in (shape, spec.sizes)
            )
            lines.extend(
                f"{spec.variable.name} {line}" for line in identity_difference(stored, wanted)
            )
    return lines


def _former_digests(corpus: zarr.Group, facts: Mapping[str, JSON]) -> list[JSON]:
    """Return what the corpus that a model was run over had been before."""
    digests = corpus_digests(corpus)
    own = facts.get("corpus_sha256")
    return [one for one in digests[: digests.index(own)] if one != own] if own in digests else []


def _row_values(spec: ArraySpec) -> int:
    """Return how many values of one token a chunk of a site has."""
    outer = (STEP, LAYER, BLOCK, TOKEN)
    return math.prod(size for name, size in spec.sizes.items() if name not in outer)


def _chunk_rows(group: zarr.Group) -> dict[str, JSON]:
    return {"chunk_rows": group.attrs["chunk_rows"]}


def _check_corpus(corpus: zarr.Group, name: str, facts: Mapping[str, JSON]) -> None:
    """Refuse token coordinates made from another corpus than the stored one is, or was."""
    if "corpus_sha256" in facts and facts["corpus_sha256"] not in corpus_digests(corpus):
        stored = {"content_sha256": corpus.attrs["content_sha256"]}
        wanted = {"content_sha256": facts["corpus_sha256"]}
        refuse_other(
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
