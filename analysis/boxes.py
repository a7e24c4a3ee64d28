"""The results of slabs as labelled boxes, ready to be stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import xarray as xr

from analysis.heads import head_dimension
from analysis.metrics.values import SINK
from analysis.plan import Plan
from analysis.results import assemble
from analysis.tasks import SlabResult, SlabTask
from store.schema import DIM, HEAD, HEAD_DIM, STEP, TOKEN
from store.slab import Slab

RESIDUAL: Final = "residual"
"""The site whose results go by the plain names of the metrics."""

SINK_RATES: Final = {
    "attention_first_key": ("mean", "attention_sink_rate", "the first key"),
    "attention_received": ("mean_by_position", "attention_sink_rate_by_key", "the key"),
}
"""Of sites, what is compared with ``SINK``, the share of heads beyond it, and what it is about."""


def labelled_results(results: Iterable[SlabResult]) -> list[xr.Dataset]:
    """Return the results of slabs as boxes (step, layer, population, ...).

    Layers of a step of which the same was measured share a box: each box costs as much as another.
    """
    alike: dict[SlabTask, list[SlabResult]] = {}
    for result in results:
        task = result.task
        alike.setdefault(replace(task, slab=replace(task.slab, depth=None)), []).append(result)
    return [box for group in alike.values() for box in _boxes(group)]


def _boxes(results: Sequence[SlabResult]) -> list[xr.Dataset]:
    """Return the results of some layers of one step, one box for each half of what was measured."""
    results = sorted(results, key=lambda result: result.task.slab.depth or 0)
    slab, plan = results[0].task.slab, results[0].task.plan
    places, heads = [place_labels(result.task.slab) for result in results], head_labels(slab)
    labels: dict[str, list[int]] = {name: [place[name] for place in places] for name in places[0]}
    labels[STEP] = labels[STEP][:1]
    sizes = {name: len(numbers) for name, numbers in (labels | heads).items()}
    cells = {
        (0, *[depth][: len(places[0]) - 1], *[head][: len(heads)]): one
        for depth, result in enumerate(results)
        for head, one in enumerate(result.results)
    }
    boxes = []
    for half in halves_of(plan):
        box = assemble(cells, half, sizes).assign_coords(labels | heads)
        if DIM in box.dims:
            box = box.rename({DIM: HEAD_DIM if heads else _row_dimension(slab)})
        named = box.rename({name: result_name(str(name), slab.site) for name in box.data_vars})
        boxes.append(named.assign(_sink_rates(box, slab.site)))
    return boxes


def _sink_rates(box: xr.Dataset, site: str) -> dict[str, xr.DataArray]:
    """Return the share of heads whose mean attention to a key exceeds ``SINK``, by its name."""
    if site not in SINK_RATES or HEAD not in box.dims:
        return {}
    metric, name, key = SINK_RATES[site]
    if metric not in box:
        return {}
    rate = (box[metric] > SINK).where(box[metric].notnull()).mean(HEAD)
    about = f"share of heads whose mean attention to {key} exceeds {SINK}"
    facts = {"long_name": about, "units": "1", "reference": "Gu et al. 2025, arXiv:2410.10781"}
    return {name: rate.assign_attrs(facts)}


def _row_dimension(slab: Slab) -> str:
    """Return the name of the dimension of a row: rows of several lengths have several."""
    return next(name for name in reversed(slab.dims) if name != TOKEN)


def result_name(name: str, site: str) -> str:
    """Return the name under which a metric of a site is stored."""
    return name if site == RESIDUAL else f"{site}_{name}"


def place_labels(slab: Slab) -> dict[str, int]:
    """Return the step of a slab, and its layer or block: layers count from 0, blocks from 1."""
    place = {STEP: slab.step}
    if slab.depth is not None:
        assert slab.label is not None
        name, number = slab.label
        place[name] = number
    return place


def head_labels(slab: Slab) -> dict[str, list[int]]:
    """Return the numbers of the heads of a slab, nothing where it has none."""
    name = head_dimension(slab)
    return {} if name is None else {name: list(range(slab.shape[slab.dims.index(name)]))}


def halves_of(plan: Plan) -> list[Plan]:
    """Divide a plan into what reads moments and what reads neighbours."""
    moment = tuple(metric for metric in plan.metrics if metric.needs != "neighbors")
    neighbor = tuple(metric for metric in plan.metrics if metric.needs == "neighbors")
    halves = []
    if moment:
        halves.append(replace(plan, metrics=moment, neighbor_populations=()))
    if neighbor:
        halves.append(replace(plan, metrics=neighbor, populations=()))
    return halves
