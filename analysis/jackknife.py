"""Standard errors of any metric, from leaving out groups of whole sequences in turn.

Tokens of a sequence are not independent, sequences nearly are. Groups of different sizes m_g of
n rows call for the delete-m_j jackknife (Busing, Meijer & Van der Leeden 1999): with
h_g = n/m_g, pseudo-values θ̃_g = h_g θ − (h_g − 1) θ_(−g), and θ_J = G θ − Σ(1 − m_g/n) θ_(−g),
the variance is (1/G) Σ (θ̃_g − θ_J)²/(h_g − 1). For equal groups it is the common one.

Everything but the spectrum is recomputed exactly without each group. What happens to the spectrum
is in ``compression``, to the first component alone in ``first_component``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from analysis.compression import CompressedSpectrum, Subspace
from analysis.first_component import FirstComponent
from analysis.layer import LayerStatistics
from analysis.moments import Moments, merged
from analysis.populations import Population
from analysis.spectrum import Spectrum
from analysis.statistics import Statistics

Floats = npt.NDArray[np.float64]


def leave_out_groups(
    layer: LayerStatistics,
    population: Population,
    total: Statistics,
    first: FirstComponent | None = None,
) -> list[tuple[int, Statistics]]:
    """Return the statistics of a population without each of its groups.

    Args:
        layer: Statistics by group.
        population: The population.
        total: Its statistics over all groups; only the spectra that were read from it are
            prepared.
        first: Its first component, where nothing else of the spectrum is known.

    Returns:
        For each group that has rows, its number of rows and the statistics of all others;
        empty with fewer than two such groups.
    """
    groups = [layer.group(population, index) for index in range(len(layer.groups))]
    filled = [index for index, group in enumerate(groups) if group.central.n]
    if len(filled) < 2:
        return []
    spectra = _Spectra(layer, population, total)
    left = []
    for index in filled:
        others = (groups[other] for other in filled if other != index)
        rest = merged(others, layer.dim, scatter=False)
        centred, uncentred = spectra.without(index, groups[index], rest)
        share = None
        if first is not None:
            shift = rest.central.mean - total.mean
            share = first.share_without(index, shift, rest.central.n)
        statistics = Statistics(rest, spectrum=centred, uncentred=uncentred, first=share)
        left.append((groups[index].central.n, statistics))
    return left


def standard_error(total: Floats, left: Sequence[Floats], sizes: Sequence[int]) -> Floats:
    """Return the delete-m_j jackknife's standard error, elementwise.

    Args:
        total: The value θ over all rows, of any shape.
        left: Its values θ_(−g) without each group.
        sizes: Number of rows m_g of each group.

    Returns:
        The standard error in the shape of ``total``; NaN with fewer than two groups.
    """
    if len(left) < 2:
        return np.full_like(total, np.nan)
    values = np.stack(left)
    counts = np.asarray(sizes, np.float64).reshape(-1, *(1,) * total.ndim)
    n = counts.sum()
    ratio = n / counts
    centre = len(left) * total - ((1 - counts / n) * values).sum(axis=0)
    pseudo = ratio * total - (ratio - 1) * values
    variance = ((pseudo - centre) ** 2 / (ratio - 1)).mean(axis=0)
    error: Floats = np.sqrt(variance)
    return error


class _Spectra:
    """The spectra of a population that were read, centred and not, ready to lose a group."""

    def __init__(self, layer: LayerStatistics, population: Population, total: Statistics) -> None:
        self._layer = layer
        self._population = population
        self._centred: CompressedSpectrum | None = None
        self._uncentred: CompressedSpectrum | None = None
        read = vars(total).keys() & {"scatter_spectrum", "uncentred_scatter_spectrum"}
        if not read:
            return
        self._subspace = Subspace(total.scatter, total.mean)
        inside, unit = self._subspace.inside, self._subspace.unit
        if "scatter_spectrum" in read:
            self._centred = CompressedSpectrum(total.scatter_spectrum.values, inside, unit)
        if "uncentred_scatter_spectrum" in read:
            values = total.uncentred_scatter_spectrum.values
            # The mean is in the subspace, so that outside of it nothing is added.
            inside = self._subspace.add_outer(inside, (total.mean, float(total.n)))
            self._uncentred = CompressedSpectrum(values, inside, unit)

    def without(
        self, index: int, group: Moments, rest: Moments
    ) -> tuple[Spectrum | None, Spectrum | None]:
        """Return both spectra without one group, None for one that was not read."""
        if self._centred is None and self._uncentred is None:
            return None, None
        scatter = self._layer.group_scatter(self._population, index)
        assert scatter is not None
        m, n = group.central.n, rest.central.n
        gap = group.central.mean - rest.central.mean
        outers = [(gap, m * n / (m + n)), (group.central.mean, float(m))]
        removed = self._subspace.remove(scatter, outers)
        centred = uncentred = None
        if self._centred is not None:
            centred = Spectrum.computed(self._centred.without(removed[0]), rank=n - 1)
        if self._uncentred is not None:
            uncentred = Spectrum.computed(self._uncentred.without(removed[1]), rank=n)
        return centred, uncentred
