"""Metrics of representation geometry, from one pass over stored or given activations."""

from analysis.errors import AnalysisError
from analysis.labelled import compute_metrics
from analysis.metrics import METRICS, Metric
from analysis.populations import POPULATIONS, Population

__all__ = [
    "METRICS",
    "POPULATIONS",
    "AnalysisError",
    "Metric",
    "Population",
    "compute_metrics",
]
