"""Metrics of the eigenvalues λ₁ ≥ … ≥ λ_d of the covariance, all NaN for constant rows."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from analysis.metrics.metric import FloatArray, Metric
from analysis.statistics import Statistics
from store.schema import COMPONENT

_RAZZHIGAEV = "Razzhigaev et al. 2024, arXiv:2311.05928"
_ROY = "Roy & Vetterli 2007, The effective rank, EUSIPCO"
_JOLLIFFE = "Jolliffe 2002, Principal Component Analysis"
_CONSTANT = "fewer than two rows, or rows equal up to the rounding of float32"
_DECAY = "fewer than 99 eigenvalues above 0"

DECAY_RANKS: Final = (10, 100)
"""Ranks j of the eigenvalues that the decay is fitted to, the last one excluded."""


def spectrum(statistics: Statistics) -> FloatArray:
    """Return the eigenvalues λ_j (component) of the covariance Σ(h − μ)(h − μ)ᵀ/n, falling."""
    return statistics.spectrum


def svd_anisotropy(statistics: Statistics) -> float:
    """Return the share of the first component in the variance, λ₁/Σλ; in [1/d, 1].

    Source: Razzhigaev et al. 2024, where it is σ₁²/Σσ² of the centred rows.
    """
    return statistics.first_share


def svd_anisotropy_uncentred(statistics: Statistics) -> float:
    """Return λ₁/Σλ of Σhhᵀ, the rows not centred; in [1/d, 1]. NaN for rows of zeros."""
    values = statistics.uncentred_spectrum
    return float(values[0] / values.sum())


def stable_rank(statistics: Statistics) -> float:
    """Return Σλ/λ₁, the inverse of the SVD anisotropy; in [1, d].

    Source: Rudelson & Vershynin 2007.
    """
    return 1 / statistics.first_share


def participation_ratio(statistics: Statistics) -> float:
    """Return (Σλ)²/Σλ², the number of components that share the variance; in [1, d].

    Source: Gao et al. 2017.
    """
    values = statistics.spectrum
    return float(values.sum() ** 2 / (values**2).sum())


def effective_rank(statistics: Statistics) -> float:
    """Return exp(−Σp log p) with p = σ/Σσ, σ = √λ the singular values; in [1, d].

    Source: Roy & Vetterli 2007.
    """
    return _entropy_rank(np.sqrt(statistics.spectrum))


def effective_rank_lambda(statistics: Statistics) -> float:
    """Return exp(−Σp log p) with p = λ/Σλ, the shares of variance; in [1, d]."""
    return _entropy_rank(statistics.spectrum)


def rankme(statistics: Statistics) -> float:
    """Return the effective rank of the rows as they are, not centred; in [1, d].

    Source: Garrido et al. 2023.
    """
    return _entropy_rank(np.sqrt(statistics.uncentred_spectrum))


def isoscore(statistics: Statistics) -> float:
    """Return (PR − 1)/(d − 1), PR the participation ratio; in [0, 1]. NaN for d = 1.

    Source: Rudman et al. 2022, whose construction comes to this.
    """
    if statistics.dim < 2:
        return math.nan
    return (participation_ratio(statistics) - 1) / (statistics.dim - 1)


def spectrum_decay(statistics: Statistics) -> float:
    """Return α where λ_j falls like j^−α, fitted to ranks 10 to 99.

    The least-squares slope of log λ_j on log j with weights 1/j, its sign turned. NaN where
    fewer than 99 eigenvalues are above 0.

    Source: Agrawal et al. 2022; Stringer et al. 2019.
    """
    first, last = DECAY_RANKS
    values = statistics.spectrum[first - 1 : last - 1]
    if len(values) < last - first or not values[-1] > 0:
        return math.nan
    ranks = np.arange(first, last)
    weights, x, y = 1 / ranks, np.log(ranks), np.log(values)
    x = x - np.average(x, weights=weights)
    return -float((weights * x * y).sum() / (weights * x * x).sum())


def variance_dimension_90(statistics: Statistics) -> float:
    """Return the number of components that hold 90 % of the variance; in [1, d]."""
    return _variance_dimension(statistics.spectrum, 0.90)


def variance_dimension_95(statistics: Statistics) -> float:
    """Return the number of components that hold 95 % of the variance; in [1, d]."""
    return _variance_dimension(statistics.spectrum, 0.95)


def variance_dimension_99(statistics: Statistics) -> float:
    """Return the number of components that hold 99 % of the variance; in [1, d]."""
    return _variance_dimension(statistics.spectrum, 0.99)


def _entropy_rank(weights: FloatArray) -> float:
    if np.isnan(weights).any():
        return math.nan
    shares = weights[weights > 0] / weights.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def _variance_dimension(values: FloatArray, share: float) -> float:
    if np.isnan(values).any():
        return math.nan
    held = np.cumsum(values) / values.sum()
    # A share that is met exactly must not be missed by the rounding of the sums.
    return float(np.searchsorted(held, share - 1e-12) + 1)


SPECTRUM_METRICS = (
    Metric(
        "spectrum",
        spectrum,
        needs="spectrum",
        version=1,
        long_name="eigenvalue of the covariance",
        units="activation²",
        range="at least 0",
        reference=_JOLLIFFE,
        undefined=_CONSTANT,
        dims=(COMPONENT,),
    ),
    Metric(
        "svd_anisotropy",
        svd_anisotropy,
        needs="spectrum",
        version=1,
        long_name="share of the first component in the variance",
        units="1",
        range="1/d to 1",
        reference=_RAZZHIGAEV,
        undefined=_CONSTANT,
        first_only=True,
    ),
    Metric(
        "svd_anisotropy_uncentred",
        svd_anisotropy_uncentred,
        needs="spectrum",
        version=1,
        long_name="share of the first component, rows not centred",
        units="1",
        range="1/d to 1",
        reference=_RAZZHIGAEV,
        undefined="rows of zeros only",
    ),
    Metric(
        "stable_rank",
        stable_rank,
        needs="spectrum",
        version=1,
        long_name="stable rank",
        units="1",
        range="1 to d",
        reference="Rudelson & Vershynin 2007, Journal of the ACM 54(4)",
        undefined=_CONSTANT,
        first_only=True,
    ),
    Metric(
        "participation_ratio",
        participation_ratio,
        needs="spectrum",
        version=1,
        long_name="participation ratio",
        units="1",
        range="1 to d",
        reference="Gao et al. 2017, bioRxiv 214262",
        undefined=_CONSTANT,
    ),
    Metric(
        "effective_rank",
        effective_rank,
        needs="spectrum",
        version=1,
        long_name="effective rank",
        units="1",
        range="1 to d",
        reference=_ROY,
        undefined=_CONSTANT,
    ),
    Metric(
        "effective_rank_lambda",
        effective_rank_lambda,
        needs="spectrum",
        version=1,
        long_name="effective rank by shares of variance",
        units="1",
        range="1 to d",
        reference=_ROY,
        undefined=_CONSTANT,
    ),
    Metric(
        "rankme",
        rankme,
        needs="spectrum",
        version=1,
        long_name="effective rank, rows not centred",
        units="1",
        range="1 to d",
        reference="Garrido et al. 2023, arXiv:2210.02885",
        undefined="rows of zeros only",
    ),
    Metric(
        "isoscore",
        isoscore,
        needs="spectrum",
        version=1,
        long_name="IsoScore",
        units="1",
        range="0 to 1",
        reference="Rudman et al. 2022, arXiv:2108.07344",
        undefined=_CONSTANT + ", or width 1",
    ),
    Metric(
        "spectrum_decay",
        spectrum_decay,
        needs="spectrum",
        version=1,
        long_name="decay exponent of the eigenvalues",
        units="1",
        range="any real number",
        reference="Agrawal et al. 2022, arXiv:2206.08360; Stringer et al. 2019, Nature 571",
        undefined=_DECAY,
    ),
    Metric(
        "variance_dimension_90",
        variance_dimension_90,
        needs="spectrum",
        version=1,
        long_name="components that hold 90 % of the variance",
        units="1",
        range="1 to d",
        reference=_JOLLIFFE,
        undefined=_CONSTANT,
    ),
    Metric(
        "variance_dimension_95",
        variance_dimension_95,
        needs="spectrum",
        version=1,
        long_name="components that hold 95 % of the variance",
        units="1",
        range="1 to d",
        reference=_JOLLIFFE,
        undefined=_CONSTANT,
    ),
    Metric(
        "variance_dimension_99",
        variance_dimension_99,
        needs="spectrum",
        version=1,
        long_name="components that hold 99 % of the variance",
        units="1",
        range="1 to d",
        reference=_JOLLIFFE,
        undefined=_CONSTANT,
    ),
)
