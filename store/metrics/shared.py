"""Steps that share weights, told with every metric result: two values of one model are one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import xarray as xr
import zarr

from store.catalogue import held_steps
from store.join import Axis, JoinedArray, Label, Labelled
from store.lazy import LazyArray, Origin, Positions, Values, lazy_variable
from store.listing import ArrayNode
from store.pinned import model_group
from store.schema import METRICS_GROUP, MODEL, SHARED_WEIGHTS, STEP, Variable
from store.twins import Twins, find_twins

from .provenance import source_table

SAME, _ = SHARED_WEIGHTS


class StoredTwins(LazyArray):
    """For each step of a model's results, the other steps that share its weights, as text.

    Args:
        origin: The metrics group.
        name: Name of the coordinate.
        steps: Labels of the steps.
    """

    dtype = np.dtype(object)

    def __init__(self, origin: Origin, name: str, steps: Sequence[Label]) -> None:
        self.origin, self.name, self.steps = origin, name, tuple(map(int, steps))
        self.shape = (len(self.steps),)

    def __dask_tokenize__(self) -> tuple[object, ...]:
        return ("StoredTwins", self.origin, self.name, self.steps)

    def read_outer(self, positions: Sequence[Positions]) -> Values:
        """Return the texts of some steps."""
        texts = _texts(self.origin)
        own = [texts[self.name].get(step, "") for step in self.steps]
        return np.array(own, dtype=object)[positions[0]]


@lru_cache(maxsize=256)
def _texts(origin: Origin) -> dict[str, dict[int, str]]:
    """Return the coordinates of one snapshot's results: for each, the text of each step.

    They are kept: whatever is computed with results compares them, again and again. Steps whose
    activations were dropped are among them.
    """
    group = model_group(origin.uri, origin.snapshot, origin.path.removesuffix(f"/{METRICS_GROUP}"))
    metrics = group[METRICS_GROUP]
    assert isinstance(metrics, zarr.Group)
    held = {step.step: step for step in held_steps(group) if step.complete}
    table = source_table(metrics)
    columns = (table[name].tolist() for name in ("source_step", "source_weights_sha256"))
    weights = dict(zip(*columns, strict=True))
    weights |= {step: one.weights_sha256 for step, one in held.items()}
    files = {step: one.weight_files for step, one in held.items()}
    twins = dict(zip(weights, find_twins(weights, files), strict=True))
    return {
        name: {step: _text(one, name) for step, one in twins.items()} for name in SHARED_WEIGHTS
    }


def _text(twins: Twins, name: str) -> str:
    return " ".join(map(str, twins.same if name == SAME else twins.partly))


def twin_coordinates(origin: Origin, steps: Sequence[Label]) -> dict[str, xr.Variable]:
    """Return the coordinates of one model's results (step,), not read.

    Args:
        origin: The metrics group.
        steps: Labels of the steps.
    """
    variables = {}
    for name, variable in SHARED_WEIGHTS.items():
        array = StoredTwins(origin, name, steps)
        variables[name] = lazy_variable(array, _node(variable, len(steps)), cached=True)
    return variables


def joined_twins(
    origins: Sequence[Origin], steps: Sequence[Sequence[Label]], axes: Mapping[str, Axis]
) -> dict[str, xr.Variable]:
    """Return the coordinates of several models' results (model, step), not read.

    Args:
        origins: The metrics group of each model.
        steps: Labels of the steps of each model.
        axes: The joined axes.
    """
    joined = {STEP: axes[STEP]}
    variables = {}
    for name, variable in SHARED_WEIGHTS.items():
        parts = [
            Labelled(StoredTwins(origin, name, own), {STEP: list(own)})
            for origin, own in zip(origins, steps, strict=True)
        ]
        array = JoinedArray(parts, joined, np.dtype(object), "")
        node = _node(variable, array.shape[1])
        variables[name] = lazy_variable(array, replace(node, dims=(MODEL, STEP)), cached=True)
    return variables


def _node(variable: Variable, size: int) -> ArrayNode:
    attrs = {"long_name": variable.description}
    return ArrayNode(variable.name, variable.dims, (size,), np.dtype(object), attrs)
