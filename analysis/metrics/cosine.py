"""Average cosine similarity, over all pairs of rows, exactly, from sums of unit vectors."""

from __future__ import annotations

import math

import numpy as np

from analysis.metrics.metric import FloatArray, Metric
from analysis.statistics import Statistics
from store.schema import DIM

_GODEY = "Godey et al. 2024, arXiv:2401.12143; Ethayarajh 2019, arXiv:1909.00512"
_TIMKEY = "Timkey & van Schijndel 2021, arXiv:2109.04404"


def average_cosine(statistics: Statistics) -> float:
    """Return the mean cosine over all pairs of different rows.

    (‖Σu‖² − n)/(n(n − 1)) with u = h/‖h‖, rows of zeros left out; in [−1/(n−1), 1]. NaN for
    fewer than two rows with a direction.

    Source: Godey et al. 2024; Ethayarajh 2019, who sampled pairs instead.
    """
    n = statistics.directions.n
    if n < 2:
        return math.nan
    total = statistics.directions.total
    return (float(total @ total) - n) / (n * (n - 1))


def average_cosine_within(statistics: Statistics) -> float:
    """Return the mean over sequences of the mean cosine of pairs of rows of the sequence.

    (‖s_q‖² − n_q)/(n_q(n_q − 1)), s_q = Σu over the n_q rows of sequence q, averaged over the
    sequences of two rows or more; in [−1, 1]. NaN where there is none.
    """
    directions = statistics.directions
    return directions.within / directions.n_within if directions.n_within else math.nan


def average_cosine_across(statistics: Statistics) -> float:
    """Return the mean cosine over all pairs of rows of different sequences.

    (‖Σu‖² − Σ_q‖s_q‖²)/(n² − Σ_q n_q²); in [−1, 1]. NaN for fewer than two sequences.
    """
    directions = statistics.directions
    pairs = directions.n**2 - directions.sequence_pairs
    if directions.n_sequences < 2:
        return math.nan
    return (float(directions.total @ directions.total) - directions.sequence_squares) / pairs


def cosine_share_by_dimension(statistics: Statistics) -> FloatArray:
    """Return the share of the average cosine owed to each dimension (dim).

    Dimension k adds ((Σu)_k² − Σu_k²)/(n(n − 1)). The shares of all dimensions add up to 1 but
    need not be positive. NaN for fewer than two rows, or an average cosine of exactly 0.

    Source: Timkey & van Schijndel 2021.
    """
    added = _added_by_dimension(statistics)
    total = float(added.sum())
    return added / total if total else np.full_like(added, np.nan)


def rogue_shares(statistics: Statistics, count: int) -> float:
    """Return the share of the average cosine owed to the dimensions that add most to it.

    Args:
        statistics: Statistics of the rows.
        count: Number of dimensions taken together; see ``cosine_share_by_dimension``.

    Source: Timkey & van Schijndel 2021.
    """
    added = _added_by_dimension(statistics)
    total = float(added.sum())
    return float(np.sort(added)[::-1][:count].sum()) / total if total else math.nan


def _added_by_dimension(statistics: Statistics) -> FloatArray:
    """Return n(n − 1) times what each dimension (dim) adds to the average cosine."""
    directions = statistics.directions
    if directions.n < 2:
        return np.full_like(directions.total, np.nan)
    return directions.total**2 - directions.squares


def rogue_share_1(statistics: Statistics) -> float:
    """Return the share of the average cosine owed to one dimension; see ``rogue_shares``."""
    return rogue_shares(statistics, 1)


def rogue_share_3(statistics: Statistics) -> float:
    """Return the share of the average cosine owed to three dimensions; see ``rogue_shares``."""
    return rogue_shares(statistics, 3)


COSINE_METRICS = (
    Metric(
        "average_cosine",
        average_cosine,
        needs="directions",
        version=1,
        long_name="average cosine similarity",
        units="1",
        range="-1 to 1",
        reference=_GODEY,
        undefined="fewer than two rows that are not zero",
    ),
    Metric(
        "average_cosine_within",
        average_cosine_within,
        needs="directions",
        version=1,
        long_name="average cosine similarity within sequences",
        units="1",
        range="-1 to 1",
        reference=_GODEY,
        undefined="rows without sequences of two rows or more",
    ),
    Metric(
        "average_cosine_across",
        average_cosine_across,
        needs="directions",
        version=1,
        long_name="average cosine similarity across sequences",
        units="1",
        range="-1 to 1",
        reference=_GODEY,
        undefined="fewer than two sequences",
    ),
    Metric(
        "cosine_share_by_dimension",
        cosine_share_by_dimension,
        needs="directions",
        version=1,
        long_name="share of the average cosine owed to a dimension",
        units="1",
        range="any real number; all add up to 1",
        reference=_TIMKEY,
        undefined="fewer than two rows that are not zero",
        dims=(DIM,),
    ),
    Metric(
        "rogue_share_1",
        rogue_share_1,
        needs="directions",
        version=1,
        long_name="share of the average cosine owed to one dimension",
        units="1",
        range="any real number; near 1 where one dimension makes the average cosine",
        reference=_TIMKEY,
        undefined="fewer than two rows that are not zero",
    ),
    Metric(
        "rogue_share_3",
        rogue_share_3,
        needs="directions",
        version=1,
        long_name="share of the average cosine owed to three dimensions",
        units="1",
        range="any real number; near 1 where three dimensions make the average cosine",
        reference=_TIMKEY,
        undefined="fewer than two rows that are not zero",
    ),
)
