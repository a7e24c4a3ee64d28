"""A study from the store to its files: figures, numbers and a short account."""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import xarray as xr

from analysis.drawing import save_figure
from analysis.figures import SUFFIXES
from flows.results import STDERR
from flows.studies.errors import StudyError
from flows.studies.panels import draw_controls
from flows.studies.preparation import Request, prepare
from flows.studies.sentences import method_note
from flows.studies.study import Measured, Study
from store.catalogue import catalogue
from store.metrics import open_metrics
from store.repository import Repository
from store.schema import LAYER, MODEL, POPULATION, STEP
from store.slab import token_table

GRIDE_SCALE: Final = 4
"""Scale of GRIDE that is shown where one number a layer is: neighbours 4 and 8."""

_SIGNIFICANT_DIGITS: Final = 10
_COLUMNS: Final = (
    *("corpus", MODEL, STEP, LAYER, "relative_depth", POPULATION, "metric"),
    *("value", "stderr", "n"),
)


def run_study(
    study: Study, request: Request, *, controls: bool, tell: Callable[[str], None]
) -> list[Path]:
    """Carry out a study: bring what it needs into the store, then write its files.

    Args:
        study: The study.
        request: What is asked of it.
        controls: Whether to draw the grid of populations as well.
        tell: Called with what happens.

    Returns:
        The files written: each figure as PNG, PDF and SVG; ``numbers.csv`` and ``numbers.nc``;
        ``account.md``.

    Raises:
        StudyError: If the store lacks something and nothing may be run.
        CaptureError: If a model cannot be read or run.
        AnalysisError: If a metric cannot be computed or a figure not drawn.
        StoreError: If the store cannot be read or written.
    """
    if importlib.util.find_spec("netCDF4") is None:
        raise StudyError("a study writes NetCDF, which needs netCDF4: pip install 'actlas[export]'")
    corpus, models = prepare(study, request, tell)
    measured = read_measured(study, request.store, corpus, models)
    figures = dict(study.draw(study, measured))
    if controls:
        over_steps = study.needs == {"trajectory"} and measured.runs
        figures["controls"] = draw_controls(
            study, measured, x="step" if over_steps else "relative_depth"
        )
    request.output.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figure in figures.items():
        for suffix in SUFFIXES:
            written.append(request.output / f"{name}{suffix}")
            save_figure(figure, written[-1])
    written += [request.output / name for name in ("numbers.csv", "numbers.nc", "account.md")]
    _write_csv(study, measured, written[-3])
    _write_netcdf(study, measured, written[-2])
    account = _account(study, measured, list(figures))
    written[-1].write_text(account, encoding="utf-8")
    return written


def read_measured(study: Study, store: str, corpus: str, models: list[str]) -> Measured:
    """Read the results of a study out of the store.

    Raises:
        UnknownNameError: If a model has no results.
    """
    repository = Repository.open(store, read_only=True)
    snapshot = repository.snapshot_id()
    results = open_metrics(store, corpus=corpus, models=models, snapshot=snapshot)
    names = [name for metric in study.metrics for name in (metric, metric + STDERR)]
    names += [name for name in map(str, results.data_vars) if name.startswith("n_")] + ["n"]
    chosen = results[[name for name in names if name in results]].load()
    if "gride" in study.metrics:
        chosen = _one_scale(chosen)
    causal = {
        item.model: bool(token_table(store, item.path, snapshot).attrs.get("causal", True))
        for item in catalogue(repository, corpus=corpus, snapshot=snapshot)
    }
    return Measured(chosen, corpus, snapshot, causal)


def _one_scale(results: xr.Dataset) -> xr.Dataset:
    """Keep one scale of GRIDE, and say which."""
    chosen = results.sel(scale=GRIDE_SCALE).drop_vars("scale")
    name = f"{results['gride'].attrs['long_name']}, neighbours {GRIDE_SCALE} and {2 * GRIDE_SCALE}"
    chosen["gride"].attrs["long_name"] = name
    return chosen


def _write_csv(study: Study, measured: Measured, file: Path) -> None:
    """Write a row for each value: model, step, layer, population, metric, value, error, rows."""
    rows: list[list[object]] = []
    for metric in study.metrics:
        values = measured.results[metric]
        errors = measured.results.get(metric + STDERR, xr.full_like(values, np.nan))
        table = xr.Dataset({"value": values, "stderr": errors, "n": measured.results["n"]})
        frame = table.to_dataframe(dim_order=[MODEL, STEP, LAYER, POPULATION])
        for record in frame.dropna(subset="value").reset_index().to_dict("records"):
            record |= {"corpus": measured.corpus, "metric": metric}
            rows.append([_cell(record[column]) for column in _COLUMNS])
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(_COLUMNS)
        writer.writerows(rows)


def _cell(value: object) -> object:
    # Sums in another order differ in the last digits of float64: as many are written as agree.
    return f"{value:.{_SIGNIFICANT_DIGITS}g}" if isinstance(value, float) else value


def _write_netcdf(study: Study, measured: Measured, file: Path) -> None:
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
    plain.to_netcdf(file, engine="netcdf4")


def _account(study: Study, measured: Measured, figures: list[str]) -> str:
    lines = [f"# {study.title}", "", f"{study.question} ({study.source})", "", "## Measured", ""]
    lines += [f"- {sentence}" for sentence in study.tell(study, measured)]
    lines += ["", "## Over what", ""]
    for model in measured.models:
        lines.append(f"- {model} ({measured.kind(model)}): {_extent(measured, model)}")
    lines += ["", method_note(measured), ""]
    lines += [f"![{name}]({name}.png)" for name in figures]
    return "\n".join(lines) + "\n"


def _extent(measured: Measured, model: str) -> str:
    own = measured.of(model)
    steps = [str(step) for step in measured.steps(model)]
    rows = [
        f"{population} {int(own['n'].sel({POPULATION: population}).max()):,}"
        for population in measured.populations
    ]
    return (
        f"{own.sizes[LAYER]} layers, step{'s' if len(steps) > 1 else ''} {', '.join(steps)};"
        f" rows of a layer: {', '.join(rows)}."
    )
