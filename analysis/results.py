"""Results as labelled data: which variables there are, their dimensions and attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import xarray as xr

from analysis.frequency import FREQUENCIES
from analysis.metrics.intrinsic_dimension import DECIMATIONS, GRIDE_SCALES
from analysis.metrics.metric import STDERR, Metric
from analysis.plan import Plan, Results
from analysis.populations import POPULATIONS
from analysis.positions import POSITIONS
from analysis.shapes import RENYI_ORDERS
from store.schema import (
    COMPONENT,
    DECIMATION,
    FREQUENCY,
    ORDER,
    POPULATION,
    SCALE,
    TOKEN_POSITION,
)

Floats = npt.NDArray[np.float64]

COUNTS: Final[dict[str, str]] = {
    "n": "rows",
    "n_sequences": "sequences with a row",
    "n_dropped_special": "special tokens left out",
    "n_dropped_first": "first tokens of sequences left out",
    "n_dropped_outlier": "norm outliers left out",
    "n_dropped_zero": "rows of zeros left out",
    "n_dropped_unchosen": "rows left out by the expression",
    "n_dropped_nonfinite": "rows with NaN or infinity left out",
    "neighbors_n": "distinct rows among which neighbours were sought",
    "neighbors_n_duplicates": "sampled rows left out because they equal another one",
}
"""Variables that say how many rows a value is about."""


def result_names(plan: Plan) -> list[str]:
    """Return the variables that measuring by a plan yields."""
    names = []
    for metric in plan.metrics:
        names += [metric.name, metric.name + STDERR] if plan.errors else [metric.name]
    needs = {metric.needs == "neighbors" for metric in plan.metrics}
    counts = [name for name in COUNTS if name.startswith("neighbors") in needs]
    return names + counts


def assemble(
    cells: Mapping[tuple[int, ...], Results], plan: Plan, sizes: Mapping[str, int]
) -> xr.Dataset:
    """Put the results of layers together.

    Args:
        cells: Results by position along the outer dimensions; absent ones become NaN.
        plan: What was measured.
        sizes: Sizes of the outer dimensions, such as (step, layer).

    Returns:
        One variable (*outer, population, ...) for each metric, standard error and count.
    """
    populations = _population_names(plan)
    data = {}
    for name in result_names(plan):
        metric = next((m for m in plan.metrics if name in (m.name, m.name + STDERR)), None)
        dims = () if metric is None else metric.dims
        found = {
            (*place, populations.index(population)): value
            for place, results in cells.items()
            for population, value in results.get(name, {}).items()
        }
        if not found and metric is None:
            continue
        inner = next(iter(found.values())).shape if found else (0,) * len(dims)
        values = np.full((*sizes.values(), len(populations), *inner), np.nan)
        for place, value in found.items():
            values[place] = value
        data[name] = xr.Variable((*sizes, POPULATION, *dims), values, attributes(name, metric))
    coordinates = {POPULATION: populations}
    return _with_inner_coordinates(xr.Dataset(data, coordinates))


def attributes(name: str, metric: Metric | None) -> dict[str, str | int]:
    """Return the attributes of a variable of results.

    Args:
        name: Name of the variable.
        metric: The metric it is the value or the standard error of; None for a count.
    """
    if metric is None:
        return {"long_name": COUNTS[name], "units": "1"}
    about = metric.long_name if name == metric.name else f"standard error of {metric.long_name}"
    facts: dict[str, str | int] = {
        "long_name": about,
        "units": metric.units,
        "reference": metric.reference,
        "version": metric.version,
    }
    if name == metric.name:
        facts |= {"range": metric.range, "undefined_for": metric.undefined}
    return facts


def _population_names(plan: Plan) -> list[str]:
    wanted = {population.name for population in (*plan.populations, *plan.neighbor_populations)}
    named = [name for name in POPULATIONS if name in wanted]
    return named + sorted(wanted - set(named))


def _with_inner_coordinates(results: xr.Dataset) -> xr.Dataset:
    labels = {
        COMPONENT: range(1, results.sizes.get(COMPONENT, 0) + 1),
        SCALE: GRIDE_SCALES,
        DECIMATION: DECIMATIONS,
        FREQUENCY: FREQUENCIES,
        ORDER: RENYI_ORDERS,
        TOKEN_POSITION: range(POSITIONS),
    }
    return results.assign_coords(
        {name: np.asarray(values) for name, values in labels.items() if name in results.sizes}
    )
