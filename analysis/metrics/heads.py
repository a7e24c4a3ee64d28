"""Metrics of the queries of a head and of the keys that they are multiplied with."""

from __future__ import annotations

from typing import Final

import numpy as np

from analysis.head_sums import HeadPair
from analysis.metrics.metric import FloatArray, Metric
from store.schema import HEAD

_GODEY: Final = "Godey et al. 2024, arXiv:2401.12143, section 5"


def cosine_mean_query_key(found: HeadPair) -> FloatArray:
    """Return cos(mean q, mean k) of each head (head); in [−1, 1]. NaN where a mean is 0.

    Source: Godey et al. 2024, section 5.
    """
    queries, keys = found.queries.totals, found.keys.totals
    lengths = np.linalg.norm(queries, axis=1) * np.linalg.norm(keys, axis=1)
    return _ratio((queries * keys).sum(axis=1), lengths)


def average_cosine_query_key(found: HeadPair) -> FloatArray:
    """Return the mean cosine of all pairs of a query and a key of each head (head); in [−1, 1].

    Σu_q · Σu_k/(n_q n_k) with u = h/‖h‖, rows of zeros left out.

    Source: Godey et al. 2024, section 5.
    """
    queries, keys = found.queries, found.keys
    pairs = queries.n_directed * keys.n_directed
    return _ratio((queries.directions * keys.directions).sum(axis=1), pairs)


def _ratio(top: FloatArray, bottom: FloatArray) -> FloatArray:
    return np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom > 0)


HEAD_METRICS: Final = {
    metric.name: metric
    for metric in (
        Metric(
            "cosine_mean_query_key",
            cosine_mean_query_key,
            needs="heads",
            version=1,
            long_name="cosine of mean query and mean key",
            units="1",
            range="-1 to 1",
            reference=_GODEY,
            undefined="no rows, or a mean of 0",
            dims=(HEAD,),
        ),
        Metric(
            "average_cosine_query_key",
            average_cosine_query_key,
            needs="heads",
            version=1,
            long_name="average cosine of queries and keys",
            units="1",
            range="-1 to 1",
            reference=_GODEY,
            undefined="no rows that are not zero",
            dims=(HEAD,),
        ),
    )
}
"""Metrics of two sites together, by name: measured where both sites are."""
