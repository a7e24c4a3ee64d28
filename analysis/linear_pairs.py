"""How well one representation of some tokens maps onto another by a linear map.

All of it comes from the cross moments C = X̃ᵀỸ of centred rows. Standard errors leave out groups
of whole sequences in turn. Where a decomposition would have to be done again, the best rotation
or map of all rows is kept, which changes its value in second order only.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import xarray as xr

from analysis.cross_moments import CrossMoments, Representation
from analysis.errors import InputError, TooFewRowsError
from analysis.groups import group_bounds
from analysis.jackknife import standard_error
from analysis.metrics.metric import STDERR
from analysis.populations import TokenTable
from store.schema import LAYER, OTHER

Rows = npt.NDArray[np.floating]
Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

PAIR_METRICS: Final[dict[str, str]] = {
    "cka": "linear CKA",
    "cka_debiased": "linear CKA, debiased",
    "procrustes": "similarity after the best rotation",
    "linear_r2": "share of the other's variance that a linear map explains",
    "linear_r2_increment": "share of the increment's variance that a linear map explains",
}
"""What ``compare_linear`` measures, and how it is called on an axis."""


def compare_linear(
    representations: Mapping[Hashable, Callable[[], Rows]],
    *,
    dim: str = LAYER,
    sequences: Indices | None = None,
    kinds: Sequence[Hashable] | None = None,
) -> xr.Dataset:
    """Compare every representation of some tokens with every other.

    Args:
        representations: How to load the finite rows (token, dim) of each, of the same tokens in
            the order of their sequences; each is loaded once and kept, in float32.
        dim: What the representations are, as in ``layer`` or ``step``.
        sequences: Sequence of each row (token); rows are taken for independent without.
        kinds: Kind of each representation, such as its model; pairs of one kind are left out.

    Returns:
        By (dim, other_dim), with standard errors:

        - ``cka``: ‖X̃ᵀỸ‖²/(‖X̃ᵀX̃‖‖ỸᵀỸ‖), in [0, 1] (Kornblith et al. 2019), and ``cka_debiased``
          from the unbiased estimator of HSIC (Song et al. 2012), which is 0 for independent rows
          whatever their number.
        - ``procrustes``: Σσ(X̃ᵀỸ)/(‖X̃‖‖Ỹ‖), in [0, 1] (Schönemann 1966).
        - ``linear_r2``: 1 − min‖Ỹ − X̃W‖²/‖Ỹ‖², how much of the second (``other_dim``) a linear
          map of the first explains (Razzhigaev et al. 2024, Your Transformer is Secretly Linear);
          ``linear_r2_increment``: the same with Y − X in the denominator, NaN for other widths.
          Both grow with d/n.

        ``n`` is the number of tokens.

    Raises:
        TooFewRowsError: If there are fewer than four rows.
        InputError: If the representations have different numbers of rows.
    """
    sides = _load(representations)
    n = sides[0].n
    if n < 4:
        raise TooFewRowsError(f"comparing representations needs at least 4 rows, got {n}")
    codes = np.zeros(n, np.int8)
    bounds = group_bounds(TokenTable(codes, sequences, labelled=sequences is not None))
    norms = []
    for side in sides:
        own = CrossMoments(side, side, bounds)
        norms.append((own.alignments, own.debiased_alignments))
    shape = (len(sides), len(sides))
    tables = {name: np.full(shape, np.nan) for name in PAIR_METRICS}
    errors = {name: np.full(shape, np.nan) for name in PAIR_METRICS}
    for i, first in enumerate(sides):
        for j in range(i, len(sides)):
            if kinds is not None and kinds[i] == kinds[j]:
                continue
            cross = CrossMoments(first, sides[j], bounds)
            for name, (value, error) in _symmetric(cross, norms[i], norms[j]).items():
                tables[name][[i, j], [j, i]] = value
                errors[name][[i, j], [j, i]] = error
            for name, (value, error) in _directed(first, sides[j], cross.total, bounds).items():
                tables[name][i, j], errors[name][i, j] = value, error
            if i != j:
                found = _directed(sides[j], first, cross.total.T, bounds)
                for name, (value, error) in found.items():
                    tables[name][j, i], errors[name][j, i] = value, error
    return _labelled(tables, errors, list(representations), dim, n)


Valued = dict[str, tuple[float, float]]


def _symmetric(
    cross: CrossMoments, first: tuple[Floats, Floats], second: tuple[Floats, Floats]
) -> Valued:
    """Return CKA and Procrustes similarity, each with its standard error."""
    found: Valued = {}
    plain = (cross.alignments, cross.debiased_alignments)
    for name, values, x, y in zip(("cka", "cka_debiased"), plain, first, second, strict=True):
        with np.errstate(invalid="ignore", divide="ignore"):
            found[name] = _with_error(values / np.sqrt(x * y), cross.sizes)
    found["procrustes"] = _procrustes(cross)
    return found


def _procrustes(cross: CrossMoments) -> tuple[float, float]:
    left_axes, values, right_axes = np.linalg.svd(cross.total, full_matrices=False)
    rotation = left_axes @ right_axes
    without = [float(np.vdot(rotation, cross.left(index))) for index in range(len(cross.groups))]
    nuclear = np.array([float(values.sum()), *without])
    with np.errstate(invalid="ignore", divide="ignore"):
        return _with_error(nuclear / np.sqrt(cross.lengths()), cross.sizes)


def _directed(
    first: Representation, second: Representation, moments: Floats, bounds: Indices
) -> Valued:
    """Return the shares of variance that the best linear map explains, with standard errors."""
    if first.n <= first.rows.shape[1] + 1:
        return {}
    whitening = first.whitening
    best = (whitening @ (whitening.T @ moments)).astype(np.float32)
    missed = second.rows - first.rows @ best
    residuals = _group_sums(np.einsum("ij,ij->i", missed, missed, dtype=np.float64), bounds)
    found = {"linear_r2": _explained(residuals, _group_sums(second.squares, bounds), bounds)}
    if first.rows.shape == second.rows.shape:
        step = second.rows - first.rows
        steps = _group_sums(np.einsum("ij,ij->i", step, step, dtype=np.float64), bounds)
        found["linear_r2_increment"] = _explained(residuals, steps, bounds)
    return found


def _explained(residuals: Floats, squares: Floats, bounds: Indices) -> tuple[float, float]:
    """Return 1 − Σ residuals/Σ squares, both by group, and its standard error."""
    tops = np.concatenate([[residuals.sum()], residuals.sum() - residuals])
    bottoms = np.concatenate([[squares.sum()], squares.sum() - squares])
    shares = 1 - np.divide(tops, bottoms, out=np.full_like(tops, np.nan), where=bottoms > 0)
    return _with_error(shares, np.diff(bounds).tolist())


def _group_sums(values: Floats, bounds: Indices) -> Floats:
    sums: Floats = np.add.reduceat(values, bounds[:-1])
    return sums


def _with_error(values: Floats, sizes: list[int]) -> tuple[float, float]:
    """Return the first of values (1 + group), and the standard error from the others."""
    return float(values[0]), float(standard_error(values[0], list(values[1:]), sizes))


def _load(representations: Mapping[Hashable, Callable[[], Rows]]) -> list[Representation]:
    sides = {label: Representation(load()) for label, load in representations.items()}
    counts = {label: side.n for label, side in sides.items()}
    if not sides or len(set(counts.values())) > 1:
        raise InputError(f"representations of the same tokens have as many rows each; got {counts}")
    return list(sides.values())


def _labelled(
    tables: Mapping[str, Floats],
    errors: Mapping[str, Floats],
    labels: list[Hashable],
    dim: str,
    n: int,
) -> xr.Dataset:
    dims = (dim, OTHER + dim)
    results = xr.Dataset({"n": n}, dict.fromkeys(dims, labels))
    for name, about in PAIR_METRICS.items():
        results[name] = (dims, tables[name], {"long_name": about, "units": "1"})
        about = f"standard error of {about}"
        results[name + STDERR] = (dims, errors[name], {"long_name": about, "units": "1"})
    return results
