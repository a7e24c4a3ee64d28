"""Standard errors of any metric, from leaving out groups of whole sequences in turn.

Tokens of a sequence are not independent, sequences nearly are. Groups of different sizes m_g of
n rows call for the delete-m_j jackknife (Busing, Meijer & Van der Leeden 1999): with
h_g = n/m_g, pseudo-values θ̃_g = h_g θ − (h_g − 1) θ_(−g), and θ_J = G θ − Σ(1 − m_g/n) θ_(−g),
the variance is (1/G) Σ (θ̃_g − θ_J)²/(h_g − 1). For equal groups it is the common one.

Everything but the spectrum is recomputed exactly without each group. The spectrum is changed to
first order: λ_j − v_jᵀ R v_j with R what the group contributed, v_j the axes of all rows. For a
function of the eigenvalues alone this is the exact first-order change, whether or not some of
them coincide, at one matrix product a group instead of one decomposition.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from analysis.layer import LayerStatistics
from analysis.moment_kernels import add_outer
from analysis.moments import Moments, merged
from analysis.populations import Population
from analysis.spectrum import Spectrum
from analysis.statistics import Statistics

Floats = npt.NDArray[np.float64]


def leave_out_groups(
    layer: LayerStatistics, population: Population, total: Statistics
) -> list[tuple[int, Statistics]]:
    """Return the statistics of a population without each of its groups.

    Args:
        layer: Statistics by group.
        population: The population.
        total: Its statistics over all groups; only the spectra that were read from it are
            prepared, and it must have been asked for eigenvectors.

    Returns:
        For each group that has rows, its number of rows and the statistics of all others;
        empty with fewer than two such groups.
    """
    groups = [layer.group(population, index) for index in range(len(layer.groups))]
    filled = [index for index, group in enumerate(groups) if group.central.n]
    if len(filled) < 2:
        return []
    left = []
    for index in filled:
        others = (groups[other] for other in filled if other != index)
        rest = merged(others, layer.dim, scatter=False)
        centred, uncentred = _left_spectra(layer, population, total, index, groups[index], rest)
        statistics = Statistics(rest, spectrum=centred, uncentred=uncentred)
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


def _left_spectra(
    layer: LayerStatistics,
    population: Population,
    total: Statistics,
    index: int,
    group: Moments,
    rest: Moments,
) -> tuple[Spectrum | None, Spectrum | None]:
    """Return both spectra without one group, where they were read from the total."""
    centred_read = "scatter_spectrum" in vars(total)
    uncentred_read = "uncentred_scatter_spectrum" in vars(total)
    scatter = None
    if centred_read or uncentred_read:
        scatter = layer.group_scatter(population, index)
    if scatter is None:
        return None, None
    m, n = group.central.n, rest.central.n
    centred = uncentred = None
    if uncentred_read:
        removed = scatter.copy()
        add_outer(removed, group.central.mean, float(m))
        uncentred = total.uncentred_scatter_spectrum.without(removed, rank=n)
    if centred_read:
        add_outer(scatter, group.central.mean - rest.central.mean, m * n / (m + n))
        centred = total.scatter_spectrum.without(scatter, rank=n - 1)
    return centred, uncentred
