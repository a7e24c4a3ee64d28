"""What can be shown of a site of a model: its steps, its depths, the metrics of its rows."""

from __future__ import annotations

from typing import Final

from analysis.metrics import METRICS, Metric
from analysis.metrics.values import VALUE_METRICS
from store.catalogue import HeldModel
from store.schema import (
    DIM,
    HEAD,
    HEAD_DIM,
    KEY_VALUE_HEAD,
    site_variable,
    unit_dimension,
)

HEADS: Final = (HEAD, KEY_VALUE_HEAD)


def steps_with(held: HeldModel, site: str) -> list[int]:
    """Return the complete steps of a model that hold a site."""
    return [step.step for step in held.steps if step.complete and site in step.sites]


def depths_of(held: HeldModel, site: str) -> list[int]:
    """Return the numbers of the layers or blocks that some complete step holds of a site."""
    complete = (step for step in held.steps if step.complete)
    return sorted({number for step in complete for number in step.layers.get(site, ())})


def metrics_of(site: str) -> dict[str, Metric]:
    """Return what can be measured of a site: other things of numbers than of rows."""
    dims = site_variable(site).dims
    if {DIM, HEAD_DIM, unit_dimension(site)} & set(dims):
        return dict(METRICS)
    return {metric.name: metric for metric in VALUE_METRICS}
