"""Every metric of representation geometry, one file a topic, all of them in ``METRICS``."""

from __future__ import annotations

from typing import Final

from analysis.metrics.cosine import COSINE_METRICS
from analysis.metrics.drift import DRIFT_METRICS
from analysis.metrics.massive import MASSIVE_METRICS
from analysis.metrics.metric import Metric
from analysis.metrics.neighborhood import NEIGHBOR_METRICS
from analysis.metrics.sequences import SEQUENCE_METRICS
from analysis.metrics.spectrum import SPECTRUM_METRICS
from analysis.metrics.streams import STREAM_METRICS

METRICS: Final[dict[str, Metric]] = {
    metric.name: metric
    for metric in (
        *COSINE_METRICS,
        *DRIFT_METRICS,
        *MASSIVE_METRICS,
        *SPECTRUM_METRICS,
        *SEQUENCE_METRICS,
        *NEIGHBOR_METRICS,
        *STREAM_METRICS,
    )
}
"""All metrics by name, in the order in which they are computed and shown."""

__all__ = ["METRICS", "Metric"]
