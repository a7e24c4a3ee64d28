"""Where a sample of tokens lies in a layer, and which of them are near each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import svds

from analysis.token_sample import TokenSample
from store.schema import TOKEN
from store.slab import Slab

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Plane:
    """Rows seen along the two directions in which they vary most.

    Attributes:
        points: Coordinates of the rows (row, 2), in the units of the activations.
        shares: Share of the variance of the rows along each direction (2,), from 0 to 1.
    """

    points: Floats
    shares: Floats


@dataclass(frozen=True)
class Neighborhood:
    """The tokens nearest to one token in a layer.

    Attributes:
        layer: The layer.
        rows: Rows of the sample, the nearest first.
        cosine: Cosine of each with the token, from -1 to 1, both centred (row,).
    """

    layer: int
    rows: tuple[int, ...]
    cosine: Floats


def sampled_rows(slab: Slab, sample: TokenSample) -> Floats:
    """Return the rows (row, dim) of a sample in a layer, about their mean.

    Where there are heads, a row is what all of them have, side by side.
    """
    by_token = np.moveaxis(slab.rows(sample.tokens), slab.dims.index(TOKEN), 0)
    rows = by_token.reshape(len(sample), -1).astype(np.float64)
    centred: Floats = rows - rows.mean(axis=0)
    return centred


def principal_plane(rows: Floats) -> Plane:
    """Project rows (row, dim) about their mean onto their first two principal components.

    The sign of each direction is such that its largest coordinate is positive.
    """
    total = float(np.square(rows).sum())
    if min(rows.shape) < 3:
        left, values, _ = np.linalg.svd(rows, full_matrices=False)
        points = np.zeros((len(rows), 2))
        points[:, : min(2, len(values))] = (left * values)[:, :2]
    else:
        start = np.random.default_rng(0).standard_normal(min(rows.shape))
        left, values, _ = svds(rows, k=2, v0=start)
        points = (left * values)[:, ::-1]
    largest = points[np.argmax(np.abs(points), axis=0), np.arange(2)]
    points = points * np.where(largest < 0, -1.0, 1.0)
    shares = np.square(points).sum(axis=0) / total if total > 0 else np.zeros(2)
    return Plane(points, shares)


def nearest_tokens(
    layers: Sequence[Slab], sample: TokenSample, row: int, *, k: int = 5
) -> Iterator[Neighborhood]:
    """Find the tokens of a sample nearest to one of them, layer by layer, one in memory at a time.

    Args:
        layers: The layers of one step.
        sample: The tokens.
        row: Which of them.
        k: How many neighbours.
    """
    for slab in layers:
        rows = sampled_rows(slab, sample)
        norms = np.linalg.norm(rows, axis=1)
        cosine = rows @ rows[row] / np.maximum(norms * norms[row], np.finfo(np.float64).tiny)
        others = np.argsort(-np.where(np.arange(len(rows)) == row, -np.inf, cosine), kind="stable")
        nearest = others[: min(k, len(rows) - 1)]
        label = slab.label
        yield Neighborhood(
            0 if label is None else label[1], tuple(nearest.tolist()), cosine[nearest]
        )
