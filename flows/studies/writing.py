"""The numbers of a study as files, and the account of what was found."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import xarray as xr

from analysis.attention import QUANTILE
from analysis.metrics.metric import STDERR
from flows.studies.sentences import method_note
from flows.studies.study import Measured, Study
from store.schema import (
    BLOCK,
    HEAD,
    KEY_VALUE_HEAD,
    LAYER,
    MODEL,
    POPULATION,
    STEP,
)
from store.whole_file import written_whole

_SIGNIFICANT_DIGITS: Final = 10
_PLACES: Final = (
    *(MODEL, STEP, LAYER, "relative_depth", BLOCK, HEAD, KEY_VALUE_HEAD),
    *(POPULATION, QUANTILE),
)
_COLUMNS: Final = ("corpus", *_PLACES, "metric", "value", "stderr", "n")
_OVER_BLOCKS: Final = frozenset({BLOCK, HEAD, KEY_VALUE_HEAD, QUANTILE})


def write_csv(measured: Measured, file: Path) -> None:
    """Write a row for each value of each seed: where it is, value, standard error, rows."""
    with written_whole(file) as whole, whole.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        own = {str(dim) for dim in measured.results.dims if dim in _OVER_BLOCKS}
        columns = [c for c in _COLUMNS if c not in _OVER_BLOCKS or c in own]
        writer.writerow(columns)
        for name in map(str, measured.results.data_vars):
            if name == "n" or name.startswith("n_") or name.endswith(STDERR):
                continue
            for record in _records(measured, name):
                writer.writerow([_cell(record.get(column, "")) for column in columns])


def _records(measured: Measured, name: str) -> list[dict[str, object]]:
    values = measured.results[name]
    table = {"value": values, "stderr": measured.results.get(name + STDERR)}
    if LAYER in values.dims:
        table["n"] = measured.results["n"]
    present = {key: array for key, array in table.items() if array is not None}
    dims = [dim for dim in _PLACES if dim in values.dims]
    frame = xr.Dataset(present).to_dataframe(dim_order=dims)
    found: list[dict[str, object]] = []
    for record in frame.dropna(subset="value").reset_index().to_dict("records"):
        labels = {str(key): value for key, value in record.items()}
        found.append(labels | {"metric": name, "corpus": measured.corpora[str(labels[MODEL])]})
    return found


def _cell(value: object) -> object:
    # Sums in another order differ in the last digits of float64: as many are written as agree.
    return f"{value:.{_SIGNIFICANT_DIGITS}g}" if isinstance(value, float) else value


def write_netcdf(study: Study, measured: Measured, file: Path) -> None:
    """Write the results of every seed, with the facts a reader needs as attributes."""
    plain = measured.results.copy()
    for variable in plain.variables.values():
        variable.attrs = {
            k: v for k, v in variable.attrs.items() if isinstance(v, str | int | float)
        }
    plain.attrs = {
        "title": study.title,
        "source": study.source,
        "corpus": measured.corpus,
        "snapshot": measured.snapshot,
    }
    with written_whole(file) as whole:
        plain.to_netcdf(whole, engine="netcdf4")


def account(
    study: Study, measured: Measured, figures: Sequence[str], controls: Sequence[str]
) -> str:
    """Return what was asked, found and looked at, as Markdown.

    Args:
        study: The study.
        measured: Its results.
        figures: Names of its figures.
        controls: What its grid of controls shows, a sentence each.
    """
    lines = [f"# {study.title}", "", f"{study.question} ({study.source})", "", "## Measured", ""]
    lines += [f"- {sentence}" for sentence in study.tell(study, measured)]
    if controls:
        lines += ["", "## Controls", ""]
        lines += [f"- {sentence}" for sentence in controls]
    lines += ["", "## Over what", ""]
    for model in measured.models:
        lines.append(f"- {model}: {_extent(measured, model)}")
    lines += ["", method_note(measured), ""]
    lines += [f"![{name}]({name}.png)" for name in figures]
    return "\n".join(lines) + "\n"


def _extent(measured: Measured, model: str) -> str:
    own = measured.of(model)
    facts = measured.facts[model]
    steps = [str(step) for step in measured.steps(model)]
    rows = []
    for population in measured.populations:
        n = own["n"].sel({POPULATION: population}).max()
        if np.isfinite(n):
            rows.append(f"{population} {int(n):,}")
    what = "an untrained block" if "common_bias" in facts else measured.kind(model)
    numbered = "seeds" if "common_bias" in facts else f"step{'s' if len(steps) > 1 else ''}"
    seeds = f", {measured.seeds(model)} seeds" if measured.seeds(model) > 1 else ""
    return (
        f"{what}{seeds}, {own.sizes[LAYER]} layers, {numbered} {', '.join(steps)}; rows of a layer"
        f" over {measured.corpora[model]}: {', '.join(rows)}."
    )
