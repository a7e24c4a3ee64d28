"""What each number of a report means, for a reader who asks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Final

from analysis.metrics import METRICS
from analysis.populations import POPULATIONS
from analysis.report.measured import Measured
from analysis.report.series import is_count
from store.identity import JSON
from store.schema import POPULATION, STEP_COORDINATES

_GROUPS: Final = {
    "directions": "Direction, drift and norms",
    "moments": "Direction, drift and norms",
    "spectrum": "Spectrum",
    "neighbors": "Intrinsic dimension",
}
_OTHER: Final = "Other"
_COUNTS: Final = "Counts of rows"
_SECTIONS: Final = ("Args:", "Source:", "Reference:", "Returns:", "Raises:")


def describe_metrics(models: Sequence[Measured]) -> dict[str, JSON]:
    """Describe every result variable, those of ``METRICS`` first and counts last."""
    names = dict.fromkeys(name for measured in models for name in measured.metric_names)
    order = {name: place for place, name in enumerate(METRICS)}
    ranked = sorted(names, key=lambda name: (is_count(name), order.get(name, len(order)), name))
    described = {name: _describe(name, models) for name in ranked}
    if any(step.loss == step.loss for model in models for step in model.held.steps):
        loss = STEP_COORDINATES["loss"]
        described["loss"] = _entry(loss.description, "nat", _OTHER, definition="")
    return described


def describe_populations(models: Sequence[Measured]) -> list[JSON]:
    """Describe the populations that results hold, in the order in which they are defined."""
    held: dict[str, None] = {}
    for measured in models:
        if measured.results is not None and POPULATION in measured.results.coords:
            held.update(dict.fromkeys(map(str, measured.results[POPULATION].values)))
    order = [name for name in POPULATIONS if name in held]
    order += [name for name in held if name not in POPULATIONS]
    return [
        {
            "name": name,
            "description": POPULATIONS[name].description if name in POPULATIONS else "",
        }
        for name in order
    ]


def _describe(name: str, models: Sequence[Measured]) -> JSON:
    attrs: dict[str, str] = {}
    for measured in models:
        if measured.results is not None and name in measured.results:
            found = measured.results[name].attrs.items()
            attrs.update({str(key): str(value) for key, value in found})
    title = attrs.get("long_name", name.replace("_", " "))
    metric = METRICS.get(name)
    group = _COUNTS if is_count(name) else _OTHER
    if metric is None:
        return _entry(title, attrs.get("units", ""), group, definition="", attrs=attrs)
    return _entry(
        metric.long_name,
        metric.units,
        _GROUPS.get(metric.needs, _OTHER),
        definition=_definition(metric.function),
        attrs={"range": metric.range, "reference": metric.reference} | attrs,
        undefined=metric.undefined,
    )


def _entry(
    title: str,
    units: str,
    group: str,
    *,
    definition: str,
    attrs: dict[str, str] | None = None,
    undefined: str = "",
) -> dict[str, JSON]:
    known = attrs or {}
    return {
        "title": title,
        "units": "" if units == "1" else units,
        "group": group,
        "definition": definition,
        "range": known.get("range", ""),
        "undefined": undefined,
        "reference": known.get("reference", ""),
        "version": known.get("version", ""),
    }


def _definition(function: Callable[..., object]) -> str:
    """Return what a function's documentation says before its arguments and source."""
    text = inspect.getdoc(function) or ""
    paragraphs = text.split("\n\n")
    kept = [" ".join(part.split()) for part in paragraphs if not part.startswith(_SECTIONS)]
    kept[0] = kept[0].removeprefix("Return ")
    return "\n".join([kept[0][:1].upper() + kept[0][1:], *kept[1:]])
