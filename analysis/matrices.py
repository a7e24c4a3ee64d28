"""Which matrices of pairs there are to compute, what they depend on, and how they are stored."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Literal, TypeAlias

import xarray as xr

from analysis.comparisons import Compared, Comparison
from analysis.errors import InputError, UnknownMetricError
from analysis.linear_pairs import PAIR_METRICS
from analysis.neighbor_pairs import NEIGHBOR_PAIRS
from store.metrics import Definition, missing_metrics, step_identities
from store.repository import Repository
from store.schema import LAYER, OTHER_LAYER, OTHER_MODEL, OTHER_STEP, STEP
from store.slab import Slab, slabs

Over: TypeAlias = Literal["layers", "steps", "models"]

MEASURES: Final[dict[str, str]] = PAIR_METRICS | NEIGHBOR_PAIRS
"""What is measured of every pair, and how it is called on an axis."""

_VERSION: Final = 1
_INCREMENT: Final = "linear_r2_increment"


@dataclass(frozen=True)
class Subject:
    """A model, and the part of it that is compared.

    Attributes:
        path: ``corpus/model`` or ``corpus/model/stack``.
        steps: Its steps.
        layers: Its layers.
    """

    path: str
    steps: tuple[int, ...]
    layers: tuple[int, ...]


@dataclass(frozen=True)
class Matrix:
    """A comparison, and where its values belong.

    Attributes:
        task: What is compared.
        definitions: For each model, what its values depend on besides the step they are kept at.
    """

    task: Comparison
    definitions: Mapping[str, list[Definition]]


def variable(over: Over, measure: str) -> str:
    """Return the name under which a measure is stored, as ``layer_cka``."""
    return f"{over[:-1]}_{measure}"


def find_matrices(
    repository: Repository,
    over: Over,
    subjects: Sequence[Subject],
    *,
    snapshot: str,
    sample: int,
    seed: int,
) -> list[Matrix]:
    """Return every matrix that there is to compare.

    Args:
        repository: The store.
        over: What is compared.
        subjects: The models.
        snapshot: Snapshot whose activations are read.
        sample: Tokens of ``content`` drawn.
        seed: Seed of the draw.

    Raises:
        InputError: If there is nothing to compare with.
        UnknownNameError: If a model, a step or a layer is not in the store.
    """
    ordered = sorted(subjects, key=lambda subject: subject.path)
    found = list(_MATRICES[over](repository, snapshot, ordered, sample, seed))
    if not found:
        raise InputError(_NOTHING[over])
    return found


def _layers(
    repository: Repository, snapshot: str, subjects: Sequence[Subject], sample: int, seed: int
) -> Iterator[Matrix]:
    for subject in subjects:
        for step in subject.steps:
            found = _slabs(repository, snapshot, subject, steps=(step,))
            if len(found) > 1:
                definitions = _definitions("layers", {"sample": sample, "seed": seed})
                yield Matrix(Comparison(found, (), sample, seed), {subject.path: definitions})


def _steps(
    repository: Repository, snapshot: str, subjects: Sequence[Subject], sample: int, seed: int
) -> Iterator[Matrix]:
    for subject in subjects:
        if len(subject.steps) < 2:
            continue
        settings: dict[str, str | int] = {
            "sample": sample,
            "seed": seed,
            "steps": _digest(repository, snapshot, subject.path, subject.steps),
        }
        for layer in subject.layers:
            found = _slabs(repository, snapshot, subject, layers=(layer,))
            if len(found) > 1:
                definitions = _definitions("steps", settings)
                yield Matrix(Comparison(found, (), sample, seed), {subject.path: definitions})


def _models(
    repository: Repository, snapshot: str, subjects: Sequence[Subject], sample: int, seed: int
) -> Iterator[Matrix]:
    for pair in combinations(subjects, 2):
        if len({subject.path.partition("/")[0] for subject in pair}) > 1:
            continue
        first, second = (_slabs(repository, snapshot, one, steps=one.steps[-1:]) for one in pair)
        definitions = {}
        for own, other in (pair, pair[::-1]):
            identity = _digest(repository, snapshot, other.path, other.steps[-1:])
            wanted: dict[str, str | int] = {"sample": sample, "seed": seed, "other": identity}
            definitions[own.path] = _definitions("models", wanted)
        yield Matrix(Comparison(first, second, sample, seed), definitions)


_MATRICES: Final = {"layers": _layers, "steps": _steps, "models": _models}
_NOTHING: Final[dict[Over, str]] = {
    "layers": "there are no two layers to compare; choose more with --layers, or ingest a model",
    "steps": "there are no two steps of one model to compare; ingest another checkpoint of it",
    "models": "there are no two models of one corpus to compare; ingest another over the same one",
}


def _slabs(
    repository: Repository,
    snapshot: str,
    subject: Subject,
    *,
    steps: Sequence[int] | None = None,
    layers: Sequence[int] | None = None,
) -> tuple[Slab, ...]:
    return tuple(
        slabs(
            repository,
            subject.path,
            steps=subject.steps if steps is None else steps,
            layers=subject.layers if layers is None else layers,
            snapshot=snapshot,
        )
    )


def _digest(repository: Repository, snapshot: str, path: str, steps: Sequence[int]) -> str:
    known = step_identities(repository.uri, snapshot, path, steps)
    parts = [f"{step} {identity.identity_sha256}" for step, identity in sorted(known.items())]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _definitions(over: Over, settings: Mapping[str, str | int]) -> list[Definition]:
    names = [name for name in MEASURES if over != "models" or name != _INCREMENT]
    return [Definition(variable(over, name), _VERSION, settings) for name in names]


def is_missing(repository: Repository, snapshot: str, over: Over, matrix: Matrix) -> bool:
    """Return whether a value of a matrix is not in the store, or stale."""
    first, others = matrix.task.slabs, matrix.task.others
    sides = {first[0].path: (first, others or first)}
    if others:
        sides[others[0].path] = (others, first)
    for path, (own, other) in sides.items():
        labels: dict[str, list[str] | list[int]] = {LAYER: _numbers(own)}
        if over == "models":
            labels[OTHER_MODEL] = [_model(other[0])]
        if over == "steps":
            labels[OTHER_STEP] = [slab.step for slab in other]
        else:
            labels[OTHER_LAYER] = _numbers(other)
        absent = missing_metrics(
            repository,
            path,
            matrix.definitions[path],
            snapshot=snapshot,
            steps=list(dict.fromkeys(slab.step for slab in own)),
            **labels,
        )
        if bool(absent.any()):
            return True
    return False


def boxes_of(over: Over, found: Compared) -> dict[str, xr.Dataset]:
    """Return the values to be stored, by the group that they belong to."""
    own, other = found.task.slabs[0], (found.task.others or (None,))[0]
    if other is None:
        return {own.path: _box(over, found.values, own, None)}
    assert found.reverse is not None
    return {
        own.path: _box(over, found.values, own, other),
        other.path: _box(over, found.reverse, other, own),
    }


def _box(over: Over, values: xr.Dataset, own: Slab, other: Slab | None) -> xr.Dataset:
    outer: dict[str, list[str] | list[int]] = {LAYER: _numbers([own])}
    if over != "steps":
        outer = {STEP: [own.step]}
    if other is not None:
        outer[OTHER_MODEL] = [_model(other)]
    box = values.expand_dims(outer)
    counts = {name: box[name] for name in ("n", "neighbors_n")}
    if over == "steps":
        counts = {name: count.expand_dims({STEP: box[STEP]}) for name, count in counts.items()}
    names = {str(name): variable(over, str(name)) for name in box.data_vars}
    return box.assign(counts).rename(names)


def _numbers(found: Sequence[Slab]) -> list[int]:
    labels = (slab.label for slab in found)
    return list(dict.fromkeys(label[1] if label is not None else 0 for label in labels))


def _model(slab: Slab) -> str:
    """Return the name of a model within its corpus."""
    return slab.path.partition("/")[2]


def check_measure(measure: str) -> None:
    """Refuse a measure that is not in ``MEASURES``.

    Raises:
        UnknownMetricError: If it is not.
    """
    if measure not in MEASURES:
        raise UnknownMetricError(measure, MEASURES)


def matrix_of(results: xr.Dataset, over: Over, measure: str) -> xr.DataArray:
    """Return stored values of pairs, with their name and unit.

    Args:
        results: What ``store.read_metrics`` returns of a model.
        over: What was compared.
        measure: Name in ``MEASURES``.

    Raises:
        UnknownMetricError: If there is no such measure.
        InputError: If it has not been computed.
    """
    check_measure(measure)
    name = variable(over, measure)
    if name not in results:
        raise InputError(f"{name} has not been computed: run `actlas compare {over}` first")
    return results[name]
