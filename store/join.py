"""Arrays of several models as one, outer-joined by their labels, without reading any of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from .lazy import LazyArray, Positions, Values, narrowed

Label: TypeAlias = int | float | str
Axis: TypeAlias = "Sequence[Label] | int"
"""An axis by its labels, or only by its length when positions are all it has."""


@dataclass(frozen=True)
class Labelled:
    """One model's array.

    Attributes:
        array: The array.
        axes: Its dimensions in order, with labels or lengths.
    """

    array: LazyArray
    axes: Mapping[str, Axis]


def joined_axes(parts: Iterable[Labelled | None]) -> dict[str, Axis]:
    """Return the union of the axes of several arrays.

    Numeric labels ascend, strings keep the order of first appearance, and of axes without labels
    the longest counts.
    """
    axes: dict[str, Axis] = {}
    for part in parts:
        for name, axis in part.axes.items() if part is not None else ():
            held = axes.get(name, 0 if isinstance(axis, int) else [])
            axes[name] = _union(held, axis)
    return axes


def _union(one: Axis, other: Axis) -> Axis:
    if isinstance(one, int) or isinstance(other, int):
        return max(_length(one), _length(other))
    union = list(dict.fromkeys([*one, *other]))
    return union if any(isinstance(label, str) for label in union) else sorted(union)


def labels_along(axes: Mapping[str, Axis], name: str) -> list[Label]:
    """Return the labels of an axis; its positions where it has none."""
    axis = axes[name]
    return list(range(axis)) if isinstance(axis, int) else list(axis)


def _length(axis: Axis) -> int:
    return axis if isinstance(axis, int) else len(axis)


@dataclass(frozen=True)
class Places:
    """Where the labels of a joined axis lie along the axis of one part.

    Attributes:
        held: Length of the part's axis.
        table: Place of each joined label, -1 where the part has none; None when the first
            ``held`` joined positions are the part's.
    """

    held: int
    table: Positions | None = None

    def of(self, positions: Positions) -> Positions:
        """Return the places of some positions along the joined axis, -1 where there is none."""
        if self.table is not None:
            return self.table[positions]
        return np.where(positions < self.held, positions, -1)


def _places(axis: Axis, joined: Axis) -> Places:
    if isinstance(axis, int) or isinstance(joined, int):
        return Places(_length(axis))
    index = {label: place for place, label in enumerate(axis)}
    return Places(len(axis), np.array([index.get(label, -1) for label in joined], dtype=np.intp))


class JoinedArray(LazyArray):
    """Arrays of several models with a leading model axis.

    Args:
        parts: One array a model, None where a model has none.
        axes: The joined axes, which are those of every part.
        dtype: Dtype of the whole.
        fill: What stands where a model has nothing.
    """

    def __init__(
        self,
        parts: Sequence[Labelled | None],
        axes: Mapping[str, Axis],
        dtype: np.dtype[np.generic],
        fill: float | str,
    ) -> None:
        self.dtype, self.fill = dtype, fill
        self.parts = tuple(None if part is None else part.array for part in parts)
        self.places = tuple(
            () if part is None else tuple(_places(part.axes[name], axes[name]) for name in axes)
            for part in parts
        )
        self.shape = (len(self.parts), *(_length(axis) for axis in axes.values()))

    def __dask_tokenize__(self) -> tuple[object, ...]:
        return ("JoinedArray", self.parts, self.places, str(self.dtype), self.fill)

    def read_outer(self, positions: Sequence[Positions]) -> Values:
        """Read what each part has; the rest holds the fill value."""
        out = np.full([len(at) for at in positions], self.fill, dtype=self.dtype)
        for row, model in zip(out, positions[0].tolist(), strict=True):
            part = self.parts[model]
            if part is not None:
                _read_part(part, self.places[model], positions[1:], row)
        return out


def _read_part(
    part: LazyArray, places: Sequence[Places], positions: Sequence[Positions], out: Values
) -> None:
    inside = [place.of(at) for place, at in zip(places, positions, strict=True)]
    held = [np.flatnonzero(at >= 0) for at in inside]
    if not all(len(at) for at in held):
        return
    values = part.read_outer([at[where] for at, where in zip(inside, held, strict=True)])
    targets = [narrowed(at) for at in held]
    if all(isinstance(target, slice) for target in targets):
        out[tuple(targets)] = values
    else:
        out[np.ix_(*held)] = values
