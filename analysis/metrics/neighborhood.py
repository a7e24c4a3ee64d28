"""The metrics of nearest neighbours: how each estimator of intrinsic dimension is presented."""

from __future__ import annotations

from dataclasses import replace

from analysis.metrics.intrinsic_dimension import (
    GRIDE_SCALES,
    MADA_NEIGHBORS,
    MLE_NEIGHBORS,
    MOM_NEIGHBORS,
    gride,
    mada,
    mle,
    mle_mean,
    mom,
    two_nn,
    two_nn_lowest_fifth,
    two_nn_mle,
)
from analysis.metrics.metric import Metric
from store.schema import DECIMATION, SCALE

_FACCO = "Facco et al. 2017, Scientific Reports 7:12140"
_LEVINA = "Levina & Bickel 2004, NIPS"
_TOO_FEW = "too few distinct rows"

DECIMATED = ("two_nn_mle", "gride", "mle", "mom", "mada")
"""Estimators that can be asked for on fewer rows, too, besides TwoNN, which is so by default."""

_ESTIMATORS = (
    Metric(
        "two_nn",
        two_nn,
        needs="neighbors",
        version=1,
        long_name="intrinsic dimension by TwoNN",
        units="1",
        range="above 0",
        reference=_FACCO,
        undefined=_TOO_FEW,
        k=2,
    ),
    Metric(
        "two_nn_mle",
        two_nn_mle,
        needs="neighbors",
        version=1,
        long_name="intrinsic dimension by TwoNN, maximum likelihood",
        units="1",
        range="above 0",
        reference=f"{_FACCO}; Denti et al. 2022, Scientific Reports 12:20005",
        undefined=_TOO_FEW,
        k=2,
    ),
    Metric(
        "two_nn_lowest_fifth",
        two_nn_lowest_fifth,
        needs="neighbors",
        version=1,
        long_name="intrinsic dimension by TwoNN, fitted to the lowest fifth",
        units="1",
        range="above 0",
        reference=f"{_FACCO}; Razzhigaev et al. 2024, arXiv:2311.05928, published code",
        undefined=_TOO_FEW,
        k=2,
    ),
    Metric(
        "two_nn_decimated",
        two_nn,
        needs="neighbors",
        version=1,
        long_name="intrinsic dimension by TwoNN on fewer rows",
        units="1",
        range="above 0",
        reference=_FACCO,
        undefined=_TOO_FEW,
        dims=(DECIMATION,),
        k=2,
    ),
    Metric(
        "gride",
        gride,
        needs="neighbors",
        version=1,
        long_name="intrinsic dimension by GRIDE",
        units="1",
        range="above 0",
        reference="Denti et al. 2022, Scientific Reports 12:20005",
        undefined=_TOO_FEW,
        dims=(SCALE,),
        k=2 * GRIDE_SCALES[-1],
    ),
    Metric(
        "mle",
        mle,
        needs="neighbors",
        version=1,
        long_name="intrinsic dimension by maximum likelihood",
        units="1",
        range="above 0",
        reference=f"{_LEVINA}; MacKay & Ghahramani 2005",
        undefined=_TOO_FEW,
        k=MLE_NEIGHBORS,
    ),
    Metric(
        "mle_mean",
        mle_mean,
        needs="neighbors",
        version=1,
        long_name="intrinsic dimension by maximum likelihood, mean of local ones",
        units="1",
        range="above 0",
        reference=_LEVINA,
        undefined=_TOO_FEW,
        k=MLE_NEIGHBORS,
    ),
    Metric(
        "mom",
        mom,
        needs="neighbors",
        version=1,
        long_name="intrinsic dimension by the method of moments",
        units="1",
        range="above 0",
        reference="Amsaleg et al. 2018, Data Mining and Knowledge Discovery 32",
        undefined=_TOO_FEW,
        k=MOM_NEIGHBORS,
    ),
    Metric(
        "mada",
        mada,
        needs="neighbors",
        version=1,
        long_name="intrinsic dimension, manifold-adaptive",
        units="1",
        range="above 0",
        reference="Farahmand et al. 2007, ICML",
        undefined=_TOO_FEW,
        k=MADA_NEIGHBORS,
    ),
)


def _decimated(metric: Metric) -> Metric:
    """Return an estimator by the number of rows: of all, and of a half, a fourth, an eighth."""
    return replace(
        metric,
        name=f"{metric.name}_decimated",
        long_name=f"{metric.long_name}, on fewer rows",
        dims=(DECIMATION, *metric.dims),
        default=False,
    )


NEIGHBOR_METRICS = (
    *_ESTIMATORS,
    *(_decimated(metric) for metric in _ESTIMATORS if metric.name in DECIMATED),
)
