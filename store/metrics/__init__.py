"""Metric results: kept beside the activations they describe, and outliving them.

The child group ``metrics`` of a model holds one array a result variable, floating point, with the
dimensions (step, layer, population) or whatever the variable has, and NaN where nothing was
computed. Its axes are append-only lists of labels (the arrays ``step``, ``layer``,
``population`` ...), in the order in which they first appeared; reading sorts steps and depths.

Each metric ``M`` has a companion ``M_source`` (step, layer, population): the row of the table
``source`` that says which snapshot, weights, version and settings the value comes from, -1 where
it was never computed. A value is stale when any of them is not what is wanted now.
"""

from .definition import Definition
from .missing import missing_metrics
from .provenance import provenance, step_identities
from .read import open_metrics, read_metrics
from .settings import open_settings, read_settings
from .write import write_metrics

__all__ = [
    "Definition",
    "missing_metrics",
    "open_metrics",
    "open_settings",
    "provenance",
    "read_metrics",
    "read_settings",
    "step_identities",
    "write_metrics",
]
