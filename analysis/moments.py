"""Mergeable statistics of a set of rows, from which every moment metric is finished.

Each class is a commutative monoid: ``zero`` is the unit, ``merge`` adds the statistics of other
rows in place, and neither order nor grouping changes the result beyond rounding in float64.
Sums of products are central, that is, about the mean of the rows seen so far, and merge by the
pairwise formulas of Chan, Golub & LeVeque (1983) and, for the third and fourth powers, of Pébay
(2008); nothing is ever the small difference of large sums.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from analysis.errors import AnalysisError
from analysis.magnitudes import Magnitudes
from analysis.matrix_kernels import add_outer, merge_central
from analysis.shapes import Shapes

Floats = npt.NDArray[np.float64]


@dataclass
class CentralMoments:
    """Central sums up to the fourth order.

    Attributes:
        n: Number of rows.
        mean: Mean row (dim).
        squares: Σ(h − mean)² by dimension (dim).
        cubes: Σ(h − mean)³ by dimension (dim).
        quartics: Σ(h − mean)⁴ by dimension (dim).
        scatter: Σ(h − mean)(h − mean)ᵀ (dim, dim), None where only vectors are kept.
        noise: Size of an eigenvalue of the scatter that rounding can make up, 0 in float64.
    """

    n: int
    mean: Floats
    squares: Floats
    cubes: Floats
    quartics: Floats
    scatter: Floats | None
    noise: float = 0.0

    @classmethod
    def zero(cls, dim: int, *, scatter: bool) -> CentralMoments:
        """Return the statistics of no rows of width ``dim``."""
        mean, squares, cubes, quartics = np.zeros((4, dim))
        matrix = np.zeros((dim, dim)) if scatter else None
        return cls(0, mean, squares, cubes, quartics, matrix)

    @classmethod
    def of(cls, rows: Floats, *, scatter: bool) -> CentralMoments:
        """Return the statistics of a few rows (token, dim), computed in float64."""
        if len(rows) == 0:
            return cls.zero(rows.shape[1], scatter=scatter)
        mean = rows.mean(axis=0)
        centred = rows - mean
        squared = centred * centred
        matrix = centred.T @ centred if scatter else None
        cubes, quartics = (squared * centred).sum(axis=0), (squared * squared).sum(axis=0)
        return cls(len(rows), mean, squared.sum(axis=0), cubes, quartics, matrix)

    @classmethod
    def counted(cls, n: int, dim: int) -> CentralMoments:
        """Return the statistics of n rows of width ``dim`` of which no more is known: NaN."""
        mean, squares, cubes, quartics = np.full((4, dim), np.nan)
        return cls(n, mean, squares, cubes, quartics, None)

    def merge(self, other: CentralMoments) -> None:
        """Add the statistics of other rows.

        Args:
            other: Statistics of rows of the same width; left unchanged. A scatter that this
                one keeps must be known for the other, too.
        """
        if len(self.mean) != len(other.mean):
            raise AnalysisError(
                f"cannot merge rows of width {len(other.mean)} into rows of width {len(self.mean)}"
            )
        if other.n == 0:
            return
        a, b = self.n, other.n
        self.noise += other.noise
        if self.scatter is not None:
            if other.scatter is None:
                raise AnalysisError("cannot merge statistics without a scatter into some with one")
            self.scatter += other.scatter
            if a > 0:
                add_outer(self.scatter, *self.between(other))
        merge_central(a, b, self._vectors(), other._vectors())
        self.n = a + b

    def between(self, other: CentralMoments) -> tuple[Floats, float]:
        """Return v and w: the scatter of all rows is those of both sets plus w · vvᵀ."""
        n = self.n + other.n
        return other.mean - self.mean, self.n * other.n / n if n else 0.0

    def _vectors(self) -> tuple[Floats, Floats, Floats, Floats]:
        return self.mean, self.squares, self.cubes, self.quartics


@dataclass
class Directions:
    """Sums of the unit vectors u = h/‖h‖ along the rows, whole sequences at a time.

    Attributes:
        n: Number of rows with a direction, that is, all but rows of zeros.
        total: Σu (dim).
        squares: Σu² by dimension (dim).
        sequence_squares: Σ over sequences of ‖Σu‖² within the sequence.
        sequence_pairs: Σ over sequences of n_q², n_q the number of rows of the sequence.
        within: Σ over sequences of two rows or more of their average cosine.
        n_within: Number of those sequences.
        n_sequences: Number of sequences with a row.
    """

    n: int
    total: Floats
    squares: Floats
    sequence_squares: float = 0.0
    sequence_pairs: float = 0.0
    within: float = 0.0
    n_within: int = 0
    n_sequences: int = 0

    @classmethod
    def zero(cls, dim: int) -> Directions:
        """Return the sums over no rows of width ``dim``."""
        return cls(0, np.zeros(dim), np.zeros(dim))

    def add_sequences(self, squares: Floats, counts: npt.NDArray[np.int64]) -> None:
        """Add what whole sequences contribute beyond their sums by dimension.

        Args:
            squares: ‖Σu‖² of each sequence (sequence).
            counts: Number of rows with a direction of each sequence (sequence).
        """
        size = counts.astype(np.float64)
        several = counts > 1
        pairs = size[several] * (size[several] - 1)
        self.sequence_squares += float(squares.sum())
        self.sequence_pairs += float((size**2).sum())
        self.within += float(((squares[several] - size[several]) / pairs).sum())
        self.n_within += int(several.sum())
        self.n_sequences += int((counts > 0).sum())

    def merge(self, other: Directions) -> None:
        """Add the sums over other, whole sequences."""
        self.n += other.n
        self.total += other.total
        self.squares += other.squares
        self.sequence_squares += other.sequence_squares
        self.sequence_pairs += other.sequence_pairs
        self.within += other.within
        self.n_within += other.n_within
        self.n_sequences += other.n_sequences


@dataclass
class Moments:
    """All statistics of one population of rows.

    Attributes:
        central: Central moments of the rows.
        directions: Sums of their unit vectors.
        norms: Their Euclidean norms, in pieces (token), in no particular order.
        magnitudes: Sizes of their single values.
        shapes: Shapes of their sequences, all zero where they were not asked for.
    """

    central: CentralMoments
    directions: Directions
    norms: list[Floats] = field(default_factory=list)
    magnitudes: Magnitudes = field(default_factory=Magnitudes)
    shapes: Shapes = field(default_factory=Shapes)

    @classmethod
    def zero(cls, dim: int, *, scatter: bool) -> Moments:
        """Return the statistics of no rows of width ``dim``."""
        return cls(CentralMoments.zero(dim, scatter=scatter), Directions.zero(dim))

    def merge(self, other: Moments) -> None:
        """Add the statistics of other, whole sequences; the other ones are left unchanged."""
        self.central.merge(other.central)
        self.directions.merge(other.directions)
        self.norms.extend(other.norms)
        self.magnitudes.merge(other.magnitudes)
        self.shapes.merge(other.shapes)


def merged(parts: Iterable[Moments], dim: int, *, scatter: bool) -> Moments:
    """Return the statistics of several sets of rows together, none of them changed."""
    total = Moments.zero(dim, scatter=scatter)
    for part in parts:
        total.merge(part)
    return total
