"""Metrics that read the rows of a layer again, computed only where they are asked for by name."""

from __future__ import annotations

import math

import numpy as np

from analysis.frequency import FrequencyProfile
from analysis.krylov import LeadingShare
from analysis.metrics.metric import FloatArray, Metric
from analysis.partition import PartitionFunctions
from store.schema import FREQUENCY

_GAO = "Gao et al. 2019, arXiv:1907.12009; Godey et al. 2024, arXiv:2401.12143"
_MUSCO = "Musco & Musco 2015, NIPS; Parlett 1998, The symmetric eigenvalue problem"


def leading_share(found: LeadingShare) -> float:
    """Return λ₁/Σλ of the covariance, computed without it; in [1/d, 1], from below.

    The SVD anisotropy of wide layers in a fraction of its time; see ``analysis.krylov``.

    Source: Musco & Musco 2015.
    """
    return found.share


def leading_share_bound(found: LeadingShare) -> float:
    """Return how much larger λ₁ can be than ``leading_share`` says, relative to it; at least 0.

    Source: Parlett 1998, the Kato–Temple inequality.
    """
    return found.bound


def partition_isotropy(found: PartitionFunctions) -> float:
    """Return min Z(c)/max Z(c) over c = ± the eigenvectors of Σhhᵀ, Z(c) = Σ exp(c·h); in (0, 1].

    1 for rows that are spread alike in all directions.

    Source: Mu & Viswanath 2018, equation 4, after Arora et al. 2016.
    """
    if found.logarithms.size == 0:
        return math.nan
    return math.exp(float(found.logarithms.min() - found.logarithms.max()))


def count_by_frequency(found: FrequencyProfile) -> FloatArray:
    """Return the number of rows (frequency) by how often their token occurs."""
    return found.n


def norm_by_frequency(found: FrequencyProfile) -> FloatArray:
    """Return the mean norm (frequency) of rows by how often their token occurs; at least 0."""
    return _mean(found.norms, found.n)


def cosine_to_mean_by_frequency(found: FrequencyProfile) -> FloatArray:
    """Return the mean cosine to μ (frequency) of rows by how often their token occurs; in [−1, 1].

    Source: Gao et al. 2019 and Godey et al. 2024, on the long tail of the vocabulary.
    """
    return _mean(found.cosines, found.n_directed)


def _mean(sums: FloatArray, counts: FloatArray) -> FloatArray:
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


STREAM_METRICS = (
    Metric(
        "leading_share",
        leading_share,
        needs="leading",
        version=1,
        long_name="share of the first component in the variance, without a covariance",
        units="1",
        range="1/d to 1",
        reference=_MUSCO,
        undefined="fewer than two rows, or rows that do not vary",
        default=False,
    ),
    Metric(
        "leading_share_bound",
        leading_share_bound,
        needs="leading",
        version=1,
        long_name="relative error bound of the leading share",
        units="1",
        range="at least 0",
        reference=_MUSCO,
        undefined="fewer than two rows, or rows that do not vary",
        default=False,
    ),
    Metric(
        "partition_isotropy",
        partition_isotropy,
        needs="partition",
        version=1,
        long_name="isotropy of the partition function",
        units="1",
        range="0 to 1",
        reference="Mu & Viswanath 2018, ICLR, arXiv:1702.01417",
        undefined="no rows",
        default=False,
    ),
    Metric(
        "count_by_frequency",
        count_by_frequency,
        needs="frequency",
        version=1,
        long_name="rows by occurrences of their token",
        units="1",
        range="at least 0",
        reference=_GAO,
        undefined="tokens without ids",
        dims=(FREQUENCY,),
        default=False,
    ),
    Metric(
        "norm_by_frequency",
        norm_by_frequency,
        needs="frequency",
        version=1,
        long_name="mean norm by occurrences of the token",
        units="activation",
        range="at least 0",
        reference=_GAO,
        undefined="no token so frequent, or tokens without ids",
        dims=(FREQUENCY,),
        default=False,
    ),
    Metric(
        "cosine_to_mean_by_frequency",
        cosine_to_mean_by_frequency,
        needs="frequency",
        version=1,
        long_name="mean cosine to the mean row by occurrences of the token",
        units="1",
        range="-1 to 1",
        reference=_GAO,
        undefined="no token so frequent, or tokens without ids",
        dims=(FREQUENCY,),
        default=False,
    ),
)
