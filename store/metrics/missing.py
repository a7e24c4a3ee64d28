"""Which metric values have to be computed: the absent and the stale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import xarray as xr

from store.arrays import member
from store.errors import StoreError
from store.join import Label
from store.repository import Repository
from store.schema import SOURCE_SUFFIX, STEP

from .axes import ZarrArray, dimension_names, read_labels
from .definition import KEY_DIMS, Definition
from .provenance import StepIdentity, metrics_group, source_table, step_identities


def missing_metrics(
    repository: Repository,
    path: str,
    definitions: Sequence[Definition],
    *,
    snapshot: str,
    steps: Sequence[int],
    **labels: Sequence[Label],
) -> xr.DataArray:
    """Say which values are absent or stale.

    A value is current when it was computed with the same version and settings from a step that
    had the identity (weights, tokens, dtype, latest repair ...) the step has in ``snapshot``.

    Args:
        repository: The store.
        path: ``corpus/model`` or ``corpus/model/stack``.
        definitions: The metrics as they are wanted.
        snapshot: Snapshot whose activations would be read.
        steps: Labels of complete steps.
        **labels: Labels of the other dimensions that key the metrics, usually ``layer`` and
            ``population``.

    Returns:
        Booleans (metric, step, layer, population): True where the value must be computed.

    Raises:
        UnknownNameError: If the model or a step is not in the snapshot.
        StoreError: If a dimension is not one that keys metrics.
    """
    if odd := set(labels) - set(KEY_DIMS[1:]):
        raise StoreError(f"{sorted(odd)} do not key metric values; expected {KEY_DIMS[1:]}")
    identities = step_identities(repository.uri, snapshot, path, steps)
    coords: dict[str, list[Label]] = {STEP: list(steps)}
    coords |= {name: list(values) for name, values in labels.items()}
    sizes = [len(values) for values in coords.values()]
    missing = np.ones((len(definitions), *sizes), dtype=bool)
    group = metrics_group(repository.uri, repository.snapshot_id(), path)
    if group is not None:
        table = source_table(group)
        arrays = {
            at: member(group, definition.metric + SOURCE_SUFFIX)
            for at, definition in enumerate(definitions)
            if definition.metric + SOURCE_SUFFIX in group
        }
        stored = read_labels(group, arrays.values())
        for at, array in arrays.items():
            current = _current_rows(table, definitions[at], identities)
            missing[at] = ~_is_current(array, stored, coords, current)
    names = [definition.metric for definition in definitions]
    return xr.DataArray(missing, {"metric": names, **coords}, ("metric", *coords))


def _current_rows(
    table: dict[str, npt.NDArray[np.generic]],
    definition: Definition,
    identities: dict[int, StepIdentity],
) -> npt.NDArray[np.bool_]:
    """Return which rows of the source table are what is wanted now, and False at the end."""
    digests = [
        identities[step].identity_sha256 if step in identities else ""
        for step in table["source_step"].tolist()
    ]
    version, settings = definition.key()
    wanted = (
        (table["source_version"] == version)
        & (table["source_settings"] == settings)
        & (table["source_identity_sha256"] == np.array(digests, dtype=object))
    )
    return np.append(wanted.astype(bool), False)


def _is_current(
    array: ZarrArray,
    labels: Mapping[str, npt.NDArray[np.generic]],
    coords: dict[str, list[Label]],
    current: npt.NDArray[np.bool_],
) -> npt.NDArray[np.bool_]:
    """Look up the labels asked for among the stored ones; unknown labels are not current."""
    dims = dimension_names(array)
    held = current[np.asarray(array[:])]
    for axis, dim in enumerate(dims):
        if dim not in coords:
            held = held.all(axis=axis, keepdims=True)
            continue
        places = {label: place for place, label in enumerate(labels[dim].tolist())}
        # Labels that are not stored are looked up past the end.
        wanted = [places.get(label, held.shape[axis]) for label in coords[dim]]
        padded = np.insert(held, held.shape[axis], False, axis=axis)
        held = padded.take(np.array(wanted, np.intp), axis)
    kept = [dim for dim in dims if dim in coords]
    held = held.squeeze(tuple(axis for axis, dim in enumerate(dims) if dim not in coords))
    held = held.transpose([kept.index(dim) for dim in coords if dim in kept])
    held = np.expand_dims(held, tuple(at for at, dim in enumerate(coords) if dim not in kept))
    return np.broadcast_to(held, [len(wanted) for wanted in coords.values()])
