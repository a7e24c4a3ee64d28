"""What a store holds: corpora, models, steps, and which steps are the same weights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import zarr

from .arrays import member, step_capacity
from .columns import Column, read_columns
from .errors import UnknownNameError
from .extent import group_extent
from .held_layers import SiteLayers, axis_labels, decoded
from .identity import JSON, identity_difference
from .repository import Repository
from .schema import (
    LAYER,
    LAYERS_BY_STEP,
    SITES_BY_DEFAULT,
    STACKS,
    STEP,
    STEP_COORDINATES,
    node_name,
    sites_among,
)
from .slots import FREE, model_group
from .twins import find_twins

__all__ = ["HeldModel", "HeldStep", "catalogue", "find_step", "identity_difference"]


@dataclass(frozen=True)
class HeldStep:
    """One step of one model.

    Attributes:
        step: Training step.
        complete: Whether its activations are there; everything below is empty otherwise.
        sites: Sites stored.
        layers: Layers or blocks stored of each site that has them.
        n_blocks: Number of blocks of the model: with layer 0, the layers that there are.
        revision: Revision the checkpoint was read from.
        weights_sha256: SHA-256 that stands for all weight files.
        weight_files: SHA-256 of each weight file.
        identity: Everything that changes the values.
        source_dtype: Dtype the model computed in.
        precision: Dtype the values were rounded to, empty if to none.
        checkpoint: Where the checkpoint lay when it was run, empty if unknown.
        loss: Loss of the model over the corpus, NaN if unknown.
        n_tokens: Number of tokens stored for it.
        nonfinite: Number of stored values that are NaN or infinite.
        stored_bytes: Encoded bytes of its activations.
        ingested_at: Time of the commit, ISO 8601 in UTC.
        duplicates: Other steps of the model with the same weights.
        shared: Other steps with different weights that share at least one weight file.
        default_sites: Sites that an ingest stores of the model where none are named; nothing where
            that was not recorded.
    """

    step: int
    complete: bool
    sites: tuple[str, ...]
    layers: SiteLayers
    n_blocks: int
    revision: str
    weights_sha256: str
    weight_files: Mapping[str, str]
    identity: Mapping[str, JSON]
    source_dtype: str
    precision: str
    checkpoint: str
    loss: float
    n_tokens: int
    nonfinite: int
    stored_bytes: int
    ingested_at: str
    duplicates: tuple[int, ...] = ()
    shared: tuple[int, ...] = ()
    default_sites: tuple[str, ...] = ()


@dataclass(frozen=True)
class HeldModel:
    """One model over one corpus.

    Attributes:
        corpus: Name of the corpus.
        model: Id of the model, as it was given.
        path: Path of its group.
        stack: ``"encoder"`` or ``"decoder"`` of an encoder-decoder model, None otherwise.
        sites: Sites that some complete step holds.
        n_tokens: Tokens that are shown: the first ones, which every step has.
        layers: Numbers of the layers that some step holds, 0 for the embedding output.
        width: Length of a row of the residual stream.
        steps: Its steps, in ascending order, those being written included.
        stored_bytes: Encoded bytes of the activations of all steps.
        token_axis: Length of the token axis; larger than ``n_tokens`` once the corpus grew, for
            as long as some step lacks the new tokens.
    """

    corpus: str
    model: str
    path: str
    stack: str | None
    sites: tuple[str, ...]
    n_tokens: int
    layers: tuple[int, ...]
    width: int
    steps: tuple[HeldStep, ...]
    stored_bytes: int
    token_axis: int


def catalogue(
    repository: Repository,
    *,
    corpus: str | None = None,
    model: str | None = None,
    snapshot: str | None = None,
) -> list[HeldModel]:
    """List what the store holds, by corpus, model and stack.

    Args:
        repository: The store.
        corpus: Only this corpus.
        model: Only this model, by its id or the name of its group.
        snapshot: As of this snapshot, the newest by default.

    Raises:
        UnknownNameError: If there is no such corpus or model.
    """
    root = repository.read(snapshot)
    corpora = sorted(root.group_keys())
    if corpus is not None and corpus not in corpora:
        raise UnknownNameError("corpus", corpus, corpora, repository.uri)
    looked_at = corpora if corpus is None else [corpus]
    chosen = None if model is None else node_name(model)
    found = [
        _held_model(path, group)
        for name in looked_at
        for path, group in _model_groups(root, name, chosen)
    ]
    if model is not None and not found:
        names = {
            str(group.attrs["model"])
            for name in looked_at
            for _, group in _model_groups(root, name)
        }
        raise UnknownNameError("model", model, sorted(names), corpus or repository.uri)
    return found


def find_step(repository: Repository, path: str, step: int) -> HeldStep | None:
    """Return one step of a model, None if there is no such step or it is not complete.

    Raises:
        UnknownNameError: If there is no such model group.
    """
    group = model_group(repository.read(), path, repository.uri)
    held = (item for item in held_steps(group) if item.step == step and item.complete)
    return next(held, None)


def _model_groups(
    root: zarr.Group, corpus: str, chosen: str | None = None
) -> Iterator[tuple[str, zarr.Group]]:
    held = root[corpus]
    assert isinstance(held, zarr.Group)
    for name in sorted(held.group_keys()) if chosen is None else [chosen]:
        group = held.get(name)
        if not isinstance(group, zarr.Group):
            continue
        if STEP in group:
            yield f"{corpus}/{name}", group
        for stack in STACKS:
            child = group.get(stack)
            if isinstance(child, zarr.Group):
                yield f"{corpus}/{name}/{stack}", child


def _held_model(path: str, group: zarr.Group) -> HeldModel:
    corpus, _, *stack = path.split("/")
    steps = held_steps(group)
    return HeldModel(
        corpus=corpus,
        model=str(group.attrs["model"]),
        path=path,
        stack=stack[0] if stack else None,
        sites=sites_among(site for step in steps if step.complete for site in step.sites),
        n_tokens=group_extent(group).n_tokens,
        token_axis=member(group, "token_id").shape[0],
        layers=_shown_layers(group, steps),
        width=_whole(group.attrs["width"]),
        steps=steps,
        stored_bytes=sum(item.stored_bytes for item in steps),
    )


def held_steps(group: zarr.Group) -> tuple[HeldStep, ...]:
    """Return the steps of a model's group in ascending order, those being written included."""
    size = step_capacity(group)
    columns = [Column(group.path, variable, size) for variable in STEP_COORDINATES.values()]
    values = dict(zip(STEP_COORDINATES, read_columns(group.store, columns), strict=True))
    axis = member(group, "token_id").shape[0]
    values["n_tokens"] = np.where(values["n_tokens"] == 0, axis, values["n_tokens"])
    (used,) = np.nonzero(values[STEP] != FREE)
    facts: Mapping[str, JSON] = group.attrs.asdict()
    steps = (_held_step(values, int(i), facts) for i in used)
    return _with_twins(sorted(steps, key=lambda held: held.step))


def _shown_layers(group: zarr.Group, steps: Sequence[HeldStep]) -> tuple[int, ...]:
    if not group.attrs.get(LAYERS_BY_STEP):
        return axis_labels(group.attrs.asdict())[LAYER]
    held = (own for step in steps if step.complete for own in step.layers.values())
    return tuple(sorted({number for own in held for number in own}))


def _held_step(
    values: Mapping[str, npt.NDArray[np.generic]],
    slot: int,
    facts: Mapping[str, JSON],
) -> HeldStep:
    row = {name: np.asarray(column[slot]).item() for name, column in values.items()}
    sites = tuple(str(row["sites"]).split())
    defaults = facts.get(SITES_BY_DEFAULT, [])
    assert isinstance(defaults, list)
    return HeldStep(
        step=int(row["step"]),
        complete=bool(row["complete"]),
        sites=sites,
        layers=decoded(str(row["site_layers"]), sites, axis_labels(facts)),
        n_blocks=_whole(facts["n_blocks"]),
        revision=str(row["revision"]),
        weights_sha256=str(row["weights_sha256"]),
        weight_files=json.loads(row["weight_files"] or "{}"),
        identity=json.loads(row["identity"] or "{}"),
        source_dtype=str(row["source_dtype"]),
        precision=str(row["precision"]),
        checkpoint=str(row["checkpoint"]),
        loss=float(row["loss"]),
        n_tokens=int(row["n_tokens"]),
        nonfinite=int(row["nonfinite"]),
        stored_bytes=int(row["stored_bytes"]),
        ingested_at=str(row["ingested_at"]),
        default_sites=tuple(map(str, defaults)),
    )


def _with_twins(steps: Sequence[HeldStep]) -> tuple[HeldStep, ...]:
    """Note for every step which others have its weights, or a part of them."""
    weights = {held.step: held.weights_sha256 for held in steps}
    twins = find_twins(weights, {held.step: held.weight_files for held in steps})
    return tuple(
        replace(held, duplicates=one.same, shared=one.partly)
        for held, one in zip(steps, twins, strict=True)
    )


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value
