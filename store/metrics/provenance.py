"""Where each metric value comes from: the table ``source`` and the arrays that point into it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import xarray as xr
import zarr
from zarr.core.sync import sync

from store.arrays import member, read_members
from store.columns import Column, complete_slots, read_columns
from store.errors import UnknownNameError
from store.extent import token_counts
from store.pinned import model_extent, model_group
from store.repository import Repository
from store.schema import METRICS_GROUP, SOURCE_COLUMNS, SOURCE_SUFFIX, STEP_COORDINATES

from .axes import Axes, ZarrArray, dimension_names
from .definition import Definition

NO_SOURCE: Final = -1
SOURCES_PER_CHUNK: Final = 256


@dataclass(frozen=True)
class StepIdentity:
    """Which activations a step label stood for.

    Attributes:
        weights_sha256: Digest of the weights.
        identity_sha256: Digest of everything that changes the values, weights and the time of the
            latest repair included.
    """

    weights_sha256: str
    identity_sha256: str


@dataclass(frozen=True)
class Source:
    """One row of the table, its fields in the order of ``schema.SOURCE_COLUMNS``."""

    snapshot: str
    step: int
    weights_sha256: str
    identity_sha256: str
    version: int
    settings: str
    computed_at: str


def step_identities(
    uri: str, snapshot: str, path: str, steps: Iterable[int] | None = None
) -> dict[int, StepIdentity]:
    """Return the identity of complete steps as of a snapshot.

    Args:
        uri: Where the store is.
        snapshot: Id of the snapshot.
        path: Group of the model.
        steps: Labels, all complete steps by default.

    Raises:
        UnknownNameError: If the model or a step is not in the snapshot.
    """
    held = dict(_complete_steps(uri, snapshot, path))
    for step in steps or ():
        if step not in held:
            raise UnknownNameError("step", step, held, path)
    return held if steps is None else {step: held[step] for step in steps}


@lru_cache(maxsize=64)
def _complete_steps(uri: str, snapshot: str, path: str) -> dict[int, StepIdentity]:
    """Return the identity of every complete step, read once in this process."""
    group = model_group(uri, snapshot, path)
    size = member(group, "step").shape[0]
    (complete,) = complete_slots(group.store, [(path, size)])
    names = ("weights_sha256", "identity", "rewritten_at")
    columns = [Column(path, STEP_COORDINATES[name], size) for name in names]
    weights, identities, rewritten = read_columns(group.store, columns)
    extent = model_extent(uri, snapshot, path)
    counts = token_counts(group.store, path, size, extent.axis)
    held = {}
    for step, slot in zip(complete.steps.tolist(), complete.slots.tolist(), strict=True):
        parts = [weights[slot], identities[slot]]
        if counts[slot] != extent.n_tokens:
            # Longer than what is shown, and so than what metrics are computed from.
            parts.append(f"first {extent.n_tokens} tokens")
        if rewritten[slot]:
            # What was computed before may be of damaged chunks, so it must not look current.
            parts.append(f"rewritten {rewritten[slot]}")
        held[step] = StepIdentity(weights[slot], _digest(*parts))
    return held


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def append_sources(
    axes: Axes,
    snapshot: str,
    identities: Mapping[int, StepIdentity],
    definitions: Sequence[Definition],
) -> dict[tuple[int, int, str], int]:
    """Add a row for each step and each distinct version and settings.

    Returns:
        The row of each step, version and settings.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    kinds = dict.fromkeys(definition.key() for definition in definitions)
    rows = [
        Source(snapshot, step, known.weights_sha256, known.identity_sha256, *kind, now)
        for step, known in identities.items()
        for kind in kinds
    ]
    first = _append_rows(axes, rows)
    return {(row.step, row.version, row.settings): first + at for at, row in enumerate(rows)}


def _append_rows(axes: Axes, rows: Sequence[Source]) -> int:
    first = 0
    lengthened: list[tuple[ZarrArray, npt.NDArray[np.generic]]] = []
    columns = zip(*map(astuple, rows), strict=True)
    for variable, values in zip(SOURCE_COLUMNS.values(), columns, strict=True):
        if variable.name not in axes.arrays:
            axes.arrays[variable.name] = axes.group.create_array(
                variable.name,
                shape=(0,),
                chunks=(SOURCES_PER_CHUNK,),
                dtype=str if variable.dtype == "str" else variable.dtype,
                fill_value="" if variable.dtype == "str" else 0,
                dimension_names=list(variable.dims),
                attributes={"long_name": variable.description},
            )
        array = axes.arrays[variable.name]
        first = array.shape[0]
        kind = object if variable.dtype == "str" else variable.dtype
        lengthened.append((array, np.array(values, dtype=kind)))
    sync(_lengthen_each(lengthened))
    return first


async def _lengthen_each(columns: Sequence[tuple[ZarrArray, npt.NDArray[np.generic]]]) -> None:
    async def lengthen(array: ZarrArray, values: npt.NDArray[np.generic]) -> None:
        first = array.shape[0]
        await array._async_array.resize((first + len(values),))
        await array._async_array.setitem(slice(first, None), values)

    await asyncio.gather(*(lengthen(array, values) for array, values in columns))


def source_table(group: zarr.Group) -> dict[str, npt.NDArray[np.generic]]:
    """Read the whole table; strings are objects."""
    return {
        name: values.astype(object) if SOURCE_COLUMNS[name].dtype == "str" else values
        for name, values in read_members(group, SOURCE_COLUMNS).items()
    }


def provenance(
    repository: Repository, path: str, metric: str, snapshot: str | None = None
) -> xr.Dataset:
    """Say where every stored value of a metric comes from.

    Args:
        repository: The store.
        path: ``corpus/model`` or ``corpus/model/stack``.
        metric: Name of the metric.
        snapshot: Snapshot to read, the newest by default.

    Returns:
        ``schema.SOURCE_COLUMNS`` (step, layer, population), empty strings and a version of 0
        where the metric was never computed.

    Raises:
        UnknownNameError: If the model, or the metric in it, is not in the store.
    """
    group = metrics_group(repository.uri, snapshot or repository.snapshot_id(), path)
    name = metric + SOURCE_SUFFIX
    if group is None or name not in group:
        keys = [] if group is None else list(group.array_keys())
        known = [key.removesuffix(SOURCE_SUFFIX) for key in keys if key.endswith(SOURCE_SUFFIX)]
        raise UnknownNameError("metric", metric, known, f"{path} of {repository.uri}")
    dims = dimension_names(member(group, name))
    labels = {dim: np.asarray(member(group, dim)[:]).tolist() for dim in dims}
    rows = np.asarray(member(group, name)[:])
    variables = {}
    for column, values in source_table(group).items():
        blank = "" if SOURCE_COLUMNS[column].dtype == "str" else 0
        extended = np.append(values, np.array([blank], dtype=values.dtype))
        attrs = {"long_name": SOURCE_COLUMNS[column].description}
        variables[column] = (dims, extended[rows], attrs)
    numeric = [dim for dim in dims if not isinstance(labels[dim][0], str)]
    return xr.Dataset(variables, labels).sortby(numeric)


def metrics_group(uri: str, snapshot: str, path: str) -> zarr.Group | None:
    """Return the metrics of a model as of a snapshot, None when there are none.

    Raises:
        UnknownNameError: If the corpus, the model or the stack is not in the store.
    """
    group = model_group(uri, snapshot, path).get(METRICS_GROUP)
    return group if isinstance(group, zarr.Group) else None
