"""What can be shown of a site of a model: its steps, its depths, the metrics of its rows."""

from __future__ import annotations

from typing import Final

from analysis.metrics import METRICS, Metric
from analysis.metrics.values import VALUE_METRICS
from store.catalogue import HeldModel
from store.schema import (
    BLOCK,
    DIM,
    HEAD,
    HEAD_DIM,
    KEY_VALUE_HEAD,
    LAYER,
    site_variable,
    unit_dimension,
)

HEADS: Final = (HEAD, KEY_VALUE_HEAD)


def steps_with(held: HeldModel, site: str) -> list[int]:
    """Return the complete steps of a model that hold a site."""
    return [step.step for step in held.steps if step.complete and site in step.sites]


def depth_name(site: str) -> str | None:
    """Return whether a site has layers or blocks, None for one that has neither."""
    return next((name for name in (LAYER, BLOCK) if name in site_variable(site).dims), None)


def depths_of(held: HeldModel, site: str) -> list[int]:
    """Return the numbers of the layers or blocks of a site: layer 0 comes before block 1."""
    name = depth_name(site)
    if name is None:
        return []
    return [number for number in held.layers if name == LAYER or number > 0]


def metrics_of(site: str) -> dict[str, Metric]:
    """Return what can be measured of a site: other things of numbers than of rows."""
    dims = site_variable(site).dims
    if {DIM, HEAD_DIM, unit_dimension(site)} & set(dims):
        return dict(METRICS)
    return {metric.name: metric for metric in VALUE_METRICS}
