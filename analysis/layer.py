"""What one pass over a layer leaves behind, put together by population."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.groups import PackedMatrix, PackedRows
from analysis.magnitudes import Magnitudes, Sizes
from analysis.matrix_kernels import mirror
from analysis.moments import CentralMoments, Directions, Moments
from analysis.outliers import EXCLUDED, OUTLIER, TYPICAL, Parts
from analysis.populations import OUTLIER_FACTOR, POPULATIONS, Population
from analysis.sequences import GroupDirections
from analysis.shapes import Shapes

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

UNIT: Final = 4
"""Key of the rows of content scaled to norm 1, beside the parts of the rows as they are."""


@dataclass
class GroupPart:
    """Moments of the rows of one part in one group.

    Attributes:
        central: Central moments, without the scatter.
        scatter: The scatter, None where no standard error will need it.
    """

    central: CentralMoments
    scatter: PackedMatrix | PackedRows | None


@dataclass
class UndecidedRows:
    """Rows of content that only the exact median tells typical from outlying.

    Attributes:
        values: The rows (token, dim).
        tokens: Their numbers (token).
    """

    values: Floats
    tokens: Indices


@dataclass
class LayerStatistics:
    """Statistics of all parts of the rows of one layer, total and by group of sequences.

    Attributes:
        dim: Width of the rows.
        scatter: Whether products between dimensions were collected.
        central: Whether means and powers by dimension were.
        totals: Central moments of each part over all groups.
        groups: Central moments of each part, by group.
        directions: Directions, by group.
        shapes: Shapes of sequences by population, by group.
        bounds: First row of every group, and the number of rows (group + 1).
        norms: Norm of every row (token).
        peaks: Size of the largest value of every row (token).
        drawn: Sizes of some values of every row (token, value).
        parts: Part of every row (token).
        sequence: Number of the sequence of every row (token), None for independent rows.
        undecided: The undecided rows.
        median: Median norm of content, NaN without content.
    """

    dim: int
    scatter: bool
    central: bool
    totals: dict[int, CentralMoments]
    groups: list[dict[int, GroupPart]]
    directions: list[GroupDirections]
    shapes: list[Mapping[str, Shapes]]
    bounds: Indices
    norms: Floats
    peaks: Sizes
    drawn: Sizes
    parts: Parts
    sequence: Indices | None
    undecided: UndecidedRows
    median: float
    _known_sizes: dict[str, list[tuple[Floats, Magnitudes]]] = field(default_factory=dict)
    """Of one population, since they are asked for one after another."""

    def members(self, population: Population) -> npt.NDArray[np.bool_]:
        """Return which rows (token) belong to a population."""
        if not population.from_content:
            return self.parts >= EXCLUDED
        content = self.parts >= TYPICAL
        if population.typical:
            return content & (self.norms <= OUTLIER_FACTOR * self.median)
        return content & (self.norms > 0) if population.unit else content

    def total(self, population: Population) -> Moments:
        """Return the moments of a population, with the scatter if the pass was asked for it."""
        whole = Moments(self._total_moments(population), Directions.zero(self.dim))
        for group, (norms, magnitudes) in enumerate(self._sizes(population)):
            whole.directions.merge(self._group_directions(population, group))
            whole.shapes.merge(self._group_shapes(population, group))
            whole.norms.append(norms)
            whole.magnitudes.merge(magnitudes)
        return whole

    def group(self, population: Population, group: int) -> Moments:
        """Return the moments of a population in one group, without the scatter."""
        directions = self._group_directions(population, group)
        shapes = self._group_shapes(population, group)
        norms, magnitudes = self._sizes(population)[group]
        central = self._group_moments(population, group)
        return Moments(central, directions, [norms], magnitudes, shapes)

    def _total_moments(self, population: Population) -> CentralMoments:
        if not self.central:
            return CentralMoments.counted(int(self.members(population).sum()), self.dim)
        central = CentralMoments.zero(self.dim, scatter=self.scatter)
        for key in _keys(population):
            if key in self.totals:
                central.merge(self.totals[key])
        central.merge(self._undecided_moments(population, slice(None), scatter=self.scatter))
        return central

    def _group_moments(self, population: Population, group: int) -> CentralMoments:
        if not self.central:
            norms, _ = self._sizes(population)[group]
            return CentralMoments.counted(len(norms), self.dim)
        rows = slice(self.bounds[group], self.bounds[group + 1])
        central = CentralMoments.zero(self.dim, scatter=False)
        for key in _keys(population):
            if key in self.groups[group]:
                central.merge(self.groups[group][key].central)
        central.merge(self._undecided_moments(population, rows, scatter=False))
        return central

    def group_scatter(self, population: Population, group: int) -> Floats | None:
        """Return the scatter (dim, dim) of a population in one group, None if it was not kept."""
        central = CentralMoments.zero(self.dim, scatter=False)
        scatter = np.zeros((self.dim, self.dim))
        for key in _keys(population):
            if key in self.groups[group]:
                part = self.groups[group][key]
                if part.scatter is None:
                    return None
                part.scatter.add_to(scatter, *central.between(part.central))
                central.merge(part.central)
        mirror(scatter)
        rows = slice(self.bounds[group], self.bounds[group + 1])
        whole = replace(central, scatter=scatter)
        whole.merge(self._undecided_moments(population, rows, scatter=True))
        return whole.scatter

    def _sizes(self, population: Population) -> list[tuple[Floats, Magnitudes]]:
        """Return the norms of the rows of a population, and the sizes of their values, by group."""
        if population.name not in self._known_sizes:
            members = self.members(population)
            found = []
            for first, last in itertools.pairwise(self.bounds.tolist()):
                chosen = first + np.flatnonzero(members[first:last])
                norms, peaks, drawn = self.norms[chosen], self.peaks[chosen], self.drawn[chosen]
                if population.unit:
                    peaks, drawn = peaks / norms, (drawn / norms[:, None]).astype(drawn.dtype)
                    norms = np.ones_like(norms)
                largest = float(peaks.max(initial=0.0))
                found.append((norms, Magnitudes(largest, [np.sort(drawn, axis=None)])))
            self._known_sizes = {population.name: found}
        return self._known_sizes[population.name]

    def _chosen(self, population: Population, rows: slice) -> npt.NDArray[np.bool_]:
        """Return which undecided rows (token) of a range of rows belong to a population."""
        start, stop, _ = rows.indices(len(self.norms))
        tokens = self.undecided.tokens
        return self.members(population)[tokens] & (tokens >= start) & (tokens < stop)

    def _undecided_moments(
        self, population: Population, rows: slice, *, scatter: bool
    ) -> CentralMoments:
        if population.unit:
            return CentralMoments.zero(self.dim, scatter=scatter)
        chosen = self._chosen(population, rows)
        return CentralMoments.of(self.undecided.values[chosen], scatter=scatter)

    def _group_shapes(self, population: Population, group: int) -> Shapes:
        name = population.name
        if population.typical:
            content = POPULATIONS["content"]
            whole = np.array_equal(self.members(population), self.members(content))
            name = content.name if whole else ""
        return self.shapes[group].get(name, Shapes())

    def _group_directions(self, population: Population, group: int) -> Directions:
        known = self.directions[group]
        if not population.from_content:
            return known.whole
        return self._typical_directions(group) if population.typical else known.content

    def _typical_directions(self, group: int) -> Directions:
        """Complete the directions of typical rows by the undecided ones that turned out typical."""
        known = self.directions[group]
        typical = Directions.zero(self.dim)
        typical.merge(known.typical)
        rows = slice(self.bounds[group], self.bounds[group + 1])
        chosen = self._chosen(POPULATIONS["typical"], rows)
        chosen &= self.norms[self.undecided.tokens] > 0
        tokens = self.undecided.tokens[chosen]
        units = self.undecided.values[chosen] / self.norms[tokens, None]
        typical.n += len(units)
        typical.total += units.sum(axis=0)
        typical.squares += (units**2).sum(axis=0)
        if self.sequence is not None and known.deferred:
            sums = np.array(known.deferred_sums)
            counts = np.array(known.deferred_counts)
            place = np.searchsorted(known.deferred, self.sequence[tokens])
            np.add.at(sums, place, units)
            np.add.at(counts, place, 1)
            typical.add_sequences((sums**2).sum(axis=1), counts)
        return typical


def _keys(population: Population) -> tuple[int, ...]:
    """Return the parts that a population is put together from."""
    if population.unit:
        return (UNIT,)
    if not population.from_content:
        return (EXCLUDED, TYPICAL, OUTLIER)
    return (TYPICAL,) if population.typical else (TYPICAL, OUTLIER)


def needed_keys(populations: tuple[Population, ...]) -> frozenset[int]:
    """Return the parts that must be accumulated for some populations."""
    return frozenset(key for population in populations for key in _keys(population))
