"""Differences between two sides as a table and as a figure."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import xarray as xr

from analysis.curves import Curve
from analysis.drawing import save_figure
from flows.before_after import Record, samples_compared
from flows.studies.panels import Panel, draw_panels
from store.schema import LAYER, MODEL, STEP
from store.whole_file import written_whole

_DIGITS: Final = 10


def write_differences(records: Sequence[Record], file: Path) -> None:
    """Write the differences as a table, a row each."""
    with written_whole(file) as whole, whole.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(records[0])
        for record in records:
            writer.writerow(
                f"{cell:.{_DIGITS}g}" if isinstance(cell, float) else cell
                for cell in record.values()
            )


def draw_differences(
    compared: Mapping[str, Mapping[str, xr.Dataset]],
    names: tuple[str, str],
    population: str,
    file: Path,
) -> None:
    """Draw for each metric and model both sides by layer at the last step, and the difference.

    Args:
        compared: For each metric and corpus, the comparison (model, step, layer).
        names: What the two sides are called.
        population: The rows, for the title.
        file: Where the figure goes.

    Raises:
        AnalysisError: If matplotlib is not installed.
    """
    panels = []
    for metric, by_corpus in compared.items():
        for corpus, found in by_corpus.items():
            for model in found[MODEL].values:
                own = found.sel({MODEL: model})
                if own["difference"].isnull().all():
                    continue
                panels += _panels(metric, own, f"{corpus}/{model}", names)
    title = [f"{names[0]} → {names[1]}", f"rows: {population}", *samples_compared(compared)]
    save_figure(draw_panels(title, panels, columns=2), file)


def _panels(metric: str, own: xr.Dataset, heading: str, names: tuple[str, str]) -> list[Panel]:
    known = own["difference"].notnull()
    step = own[STEP].values[known.any(LAYER).values][-1]
    last = own.sel({STEP: step}).sel({LAYER: own[LAYER].values[known.sel({STEP: step}).values]})
    layers = last[LAYER].values.astype(np.float64)
    unknown = np.full(len(layers), np.nan)
    both = [
        Curve(name, layers, last[side].values, unknown, {})
        for name, side in zip(names, ("before", "after"), strict=True)
    ]
    change = Curve("difference", layers, last["difference"].values, last["stderr"].values, {})
    label = str(own.attrs.get("long_name", metric))
    heading = f"{heading} step {step}"
    return [
        Panel(label, "layer", both, heading),
        Panel(f"change of the {label}", "layer", [change], heading, level=0),
    ]
