"""Metrics of representation geometry, from one pass over stored or given activations.

What is exported is imported when it is first used, as in ``store``: SciPy and Numba take seconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .registration import register_accessor

if TYPE_CHECKING:
    from .accessor import Geometry
    from .errors import AnalysisError
    from .labelled import compute_metrics
    from .metrics import METRICS, Metric
    from .populations import POPULATIONS, Population
    from .statistics import Statistics

__all__ = ["METRICS", "POPULATIONS", "AnalysisError", "Geometry", "Metric", "Population"]
__all__ += ["Statistics", "compute_metrics"]

_MODULES = ("metrics", "populations", "errors", "accessor", "metrics", "populations")
_MODULE_OF = dict(zip(__all__, (*_MODULES, "statistics", "labelled"), strict=True))
register_accessor()


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
