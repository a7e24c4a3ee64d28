"""Metrics of representation geometry, from one pass over stored or given activations."""

from analysis.accessor import Geometry
from analysis.errors import AnalysisError
from analysis.labelled import compute_metrics
from analysis.metrics import METRICS, Metric
from analysis.populations import POPULATIONS, Population
from analysis.statistics import Statistics

__all__ = [
    "METRICS",
    "POPULATIONS",
    "AnalysisError",
    "Geometry",
    "Metric",
    "Population",
    "Statistics",
    "compute_metrics",
]
